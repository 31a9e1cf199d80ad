-- Schema 7: the time that the sender of an envelope wrote into it; NULL for other events.

ALTER TABLE events ADD COLUMN sent_ts INTEGER;
