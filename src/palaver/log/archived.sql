-- Schema 2: the ids and request keys of archived events, whose other fields are stored in archive/. With them an
-- archived event is found by its id, and a repeated request does not store its event a second time.

CREATE TABLE archived (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    sender      TEXT NOT NULL,
    request_key BLOB
);

CREATE UNIQUE INDEX archived_by_id ON archived (id, sender);
CREATE UNIQUE INDEX archived_by_request_key ON archived (request_key) WHERE request_key IS NOT NULL;
CREATE INDEX archived_by_end ON archived (upper(substr(id, -4)));
