-- Schema 3: what happened in a room is found by an index, however long the log is.

ALTER TABLE events ADD COLUMN room TEXT;  -- the payload's room; '' when that is not a single word

UPDATE events
SET room = iif(json_type(payload, '$.room') = 'text', json_extract(payload, '$.room'), '')
WHERE coalesce(json_type(payload, '$.room'), 'null') <> 'null' OR blob IS NOT NULL;

CREATE INDEX events_by_room ON events (room, seq) WHERE room IS NOT NULL;
