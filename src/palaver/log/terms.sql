-- Schema 6: an index of the words by which events are filtered, such as the names of their recipients. The
-- words are hashed. It is filled with the full-text index, so that one is filled again from the events too.

CREATE VIRTUAL TABLE events_terms USING fts5 (
    terms,
    content = '',
    columnsize = 0,
    detail = none,
    tokenize = 'ascii'
);

INSERT INTO events_fts (events_fts) VALUES ('delete-all');

DELETE FROM meta WHERE key = 'indexed';
