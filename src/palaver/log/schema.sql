-- The log of one home. Schema 1; later schemas are the steps that storage.py lists.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- AUTOINCREMENT: a seq is never used twice, even if the event that had it was archived.
CREATE TABLE events (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL,
    type         TEXT NOT NULL,
    sender       TEXT NOT NULL,
    recipients   TEXT,             -- a JSON list; NULL if it is empty
    ts           INTEGER NOT NULL,
    device       TEXT NOT NULL,
    by_          TEXT,
    delivered_to TEXT,             -- a JSON list: the recipients to which a foreign envelope was routed
    thread       TEXT,             -- the payload's thread; '' if it is not a string
    payload      TEXT NOT NULL,    -- JSON; if there is a blob, only the short fields
    blob         TEXT,             -- the hash that names the file in blobs/ with the whole payload
    request_key  BLOB
);

CREATE UNIQUE INDEX events_by_id ON events (id, sender);
CREATE UNIQUE INDEX events_by_request_key ON events (request_key) WHERE request_key IS NOT NULL;
CREATE INDEX events_by_type ON events (type, seq);
CREATE INDEX events_by_sender ON events (ltrim(sender, '@') COLLATE NOCASE, seq);
CREATE INDEX events_by_thread ON events (thread, seq) WHERE thread IS NOT NULL;
CREATE INDEX events_by_end ON events (upper(substr(id, -4)));

-- The rows that the fold has computed from the events.
CREATE TABLE state (
    tbl   TEXT NOT NULL,
    key   TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (tbl, key)
) WITHOUT ROWID;

-- The texts that a search covers. The full-text index stores no copy of them: FTS5 reads them through this view,
-- so the view must not use a table-valued function. Payloads in blobs/ are indexed, but the view does not have them.
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
    columnsize = 0,                -- results are never ranked: they are in seq order
    tokenize = 'unicode61 remove_diacritics 2'
);

-- The columns that a clause after --sql can use.
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
