-- The index of terms also has the places where a message is shown. It keeps those of archived events, so
-- that the history of a channel is found in the archives too. Both indexes are filled again from the events.
-- Events that were archived before have no terms: they are read to find them.

INSERT INTO events_terms (events_terms) VALUES ('delete-all');

INSERT INTO events_fts (events_fts) VALUES ('delete-all');

DELETE FROM meta WHERE key = 'indexed';

INSERT INTO meta (key, value) SELECT 'unplaced', CAST(max(seq) AS TEXT) FROM archived HAVING max(seq) > 0;
