-- Schema 4: the seq that an imported event had in the log it comes from; nothing for an event of this log.

ALTER TABLE events ADD COLUMN imported INTEGER;
