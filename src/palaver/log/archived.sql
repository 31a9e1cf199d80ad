-- Schema 2: what the log keeps of an event that lies in archive/, so that it is found by its id and never
-- stored a second time, not even when the request that wrote it is repeated.

CREATE TABLE archived (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    sender      TEXT NOT NULL,
    request_key BLOB
);

CREATE UNIQUE INDEX archived_by_id ON archived (id, sender);
CREATE UNIQUE INDEX archived_by_request_key ON archived (request_key) WHERE request_key IS NOT NULL;
CREATE INDEX archived_by_end ON archived (upper(substr(id, -4)));
