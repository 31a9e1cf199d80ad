-- Schema 9: the rows have conversations and the list of what waits for a person. They are built again from the
-- events at the next start. An older Palaver would not keep them complete, so it refuses this schema.

DELETE FROM meta WHERE key = 'fold';
