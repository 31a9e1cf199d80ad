-- Schema 3: an index finds the events of a room, so their number decides the time, not the length of the log.

ALTER TABLE events ADD COLUMN room TEXT;  -- the payload's room; '' if it is not a string

UPDATE events
SET room = iif(json_type(payload, '$.room') = 'text', json_extract(payload, '$.room'), '')
WHERE coalesce(json_type(payload, '$.room'), 'null') <> 'null' OR blob IS NOT NULL;

CREATE INDEX events_by_room ON events (room, seq) WHERE room IS NOT NULL;
