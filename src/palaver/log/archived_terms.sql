-- Schema 8: the index of terms also contains the channels and conversations in which a message is shown. It keeps
-- these terms for archived events, so that the history of a channel also finds archived messages. Both indexes are
-- filled again from the events. Events that were archived before this schema have no terms: the meta key `unplaced`
-- has the highest of their seqs, and queries read these events one by one.

INSERT INTO events_terms (events_terms) VALUES ('delete-all');

INSERT INTO events_fts (events_fts) VALUES ('delete-all');

DELETE FROM meta WHERE key = 'indexed';

INSERT INTO meta (key, value) SELECT 'unplaced', CAST(max(seq) AS TEXT) FROM archived HAVING max(seq) > 0;
