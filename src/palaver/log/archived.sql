-- Schema 2: what the log keeps of an event that lies in archive/, so that it is found by its id and never
-- stored a second time.

CREATE TABLE archived (
    seq    INTEGER PRIMARY KEY,
    id     TEXT NOT NULL,
    sender TEXT NOT NULL
);

CREATE UNIQUE INDEX archived_by_id ON archived (id, sender);
CREATE INDEX archived_by_end ON archived (upper(substr(id, -4)));
