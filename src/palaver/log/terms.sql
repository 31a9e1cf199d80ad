-- Schema 6: an index of terms, the hashed words by which events are filtered, such as the names of recipients.
-- Events are added to it and to the full-text index together, so this step empties the full-text index: then both
-- are filled from the events.

CREATE VIRTUAL TABLE events_terms USING fts5 (
    terms,
    content = '',
    columnsize = 0,
    detail = none,
    tokenize = 'ascii'
);

INSERT INTO events_fts (events_fts) VALUES ('delete-all');

DELETE FROM meta WHERE key = 'indexed';
