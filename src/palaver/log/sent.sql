-- Schema 7: the time that the sender of an envelope wrote into it; nothing for any other event.

ALTER TABLE events ADD COLUMN sent_ts INTEGER;
