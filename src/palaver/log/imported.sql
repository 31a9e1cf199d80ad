-- Schema 4: the seq that an imported event had in the log from which it was imported; NULL for the events of this log.

ALTER TABLE events ADD COLUMN imported INTEGER;
