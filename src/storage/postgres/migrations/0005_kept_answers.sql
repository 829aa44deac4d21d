-- Answers that are kept for callers who ask again with the same Idempotency-Key. Written in the statement of the change
-- that they tell of. Both columns of bytes mean something only to whoever has the caller's credential, which is nowhere
-- here: of an answer that shows a secret, this table tells nothing but its length.
create table kept_answers (
  id bytea primary key,
  sealed bytea not null,
  expires_at timestamptz(3) not null
);
create index kept_answers_by_expiry on kept_answers (expires_at);
