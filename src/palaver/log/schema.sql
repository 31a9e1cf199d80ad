-- The log of one home. Schema 1; later ones are steps in migrations.py.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- AUTOINCREMENT: a place is never used twice, also when events were archived.
CREATE TABLE events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL,
    type         TEXT NOT NULL,
    sender       TEXT NOT NULL,
    recipients   TEXT,             -- a JSON list, or nothing when empty
    ts           INTEGER NOT NULL,
    device       TEXT NOT NULL,
    by_          TEXT,
    delivered_to TEXT,             -- a JSON list: whom a foreign envelope was routed to
    thread       TEXT,             -- the payload's thread; '' when that is not a single word
    payload      TEXT NOT NULL,    -- JSON; with a blob only its short fields
    blob         TEXT,             -- the hash under which blobs/ keeps the whole payload
    request_key  BLOB
);

CREATE UNIQUE INDEX events_by_id ON events (id, sender);
CREATE UNIQUE INDEX events_by_request_key ON events (request_key) WHERE request_key IS NOT NULL;
CREATE INDEX events_by_type ON events (type, seq);
CREATE INDEX events_by_sender ON events (ltrim(sender, '@') COLLATE NOCASE, seq);
CREATE INDEX events_by_thread ON events (thread, seq) WHERE thread IS NOT NULL;
CREATE INDEX events_by_end ON events (upper(substr(id, -4)));

-- What the fold made of the events.
CREATE TABLE state (
    tbl   TEXT NOT NULL,
    key   TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (tbl, key)
) WITHOUT ROWID;

-- What can be searched. The index keeps no second copy of it: FTS5 reads it back through this view, and
-- therefore there is no table-valued function in it. What lies in blobs is indexed, but not seen from here.
CREATE VIEW events_text AS
SELECT seq, text
FROM (
    SELECT
        seq,
        iif(json_type(payload, '$.text') = 'text', json_extract(payload, '$.text') || char(10), '')
            || iif(json_type(payload, '$.title') = 'text', json_extract(payload, '$.title') || char(10), '')
            || iif(json_type(payload, '$.description') = 'text', json_extract(payload, '$.description') || char(10), '')
            || iif(json_type(payload, '$.body') = 'text', json_extract(payload, '$.body') || char(10), '')
            || iif(json_type(payload, '$.detail') = 'text', json_extract(payload, '$.detail') || char(10), '')
            || iif(json_type(payload, '$.reason') = 'text', json_extract(payload, '$.reason') || char(10), '')
            AS text
    FROM events
)
WHERE text <> '';

CREATE VIRTUAL TABLE events_fts USING fts5 (
    text,
    content = 'events_text',
    content_rowid = 'seq',
    columnsize = 0,                -- it is never ranked: results are in the order of the log
    tokenize = 'unicode61 remove_diacritics 2'
);

-- What people ask with --sql.
CREATE VIEW events_v AS
SELECT
    seq,
    id,
    type,
    sender,
    sender AS "from",
    coalesce(recipients, '[]') AS "to",
    ts,
    strftime('%Y-%m-%dT%H:%M:%fZ', ts / 1000.0, 'unixepoch') AS time,
    device,
    by_ AS "by",
    json_extract(payload, '$.text') AS text,
    json_extract(payload, '$.scope') AS scope,
    json_extract(payload, '$.mentions') AS mentions,
    json_extract(payload, '$.sender_kind') AS sender_kind,
    coalesce(json_extract(payload, '$.delivered_to'), delivered_to) AS delivered_to,
    json_extract(payload, '$.intent') AS intent,
    json_extract(payload, '$.thread') AS thread,
    json_extract(payload, '$.reply_to') AS reply_to,
    json_extract(payload, '$.bundle_id') AS bundle_id,
    json_extract(payload, '$.priority') AS priority,
    json_extract(payload, '$.room') AS room,
    json_extract(payload, '$.command') AS command,
    json_extract(payload, '$.path') AS path,
    json_extract(payload, '$.state') AS state,
    json_extract(payload, '$.agent') AS agent,
    json_extract(payload, '$.file') AS file,
    payload
FROM events;
