-- Schema 9: the folded rows also contain conversations, and the entries that need the person. The next start
-- computes them again from the events. An older Palaver would not keep them complete, so it refuses this schema.

DELETE FROM meta WHERE key = 'fold';
