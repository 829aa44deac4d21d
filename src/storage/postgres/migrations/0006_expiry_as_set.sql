-- A reroll ends a key by its expires_at. The expiry that the key had been given as a setting is kept here, 'infinity' for
-- never, so that another reroll of the same key can hand it on. Null unless the key was rerolled since its expiry was set;
-- of those that were rerolled before this column was there, the end counts as set.
alter table keys add column expires_as_set timestamptz(3);
