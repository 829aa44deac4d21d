-- A refill that was stored while the clock of the database was far ahead would prevent all refills until that time. So a
-- time more than a day ahead counts as the last refill that was due. A smaller step back must not refill a second time.
create or replace function credits_at(credits key_credits, moment timestamptz) returns key_credits
language plpgsql immutable parallel safe as $$
declare
  refill timestamptz;
begin
  if credits.refill_interval is null then
    return credits;
  end if;
  refill := last_refill(credits.refill_interval, credits.refill_day, moment);
  if refill > credits.refilled_at then
    credits.remaining := greatest(credits.remaining, credits.refill_amount);
    credits.refilled_at := refill;
  elsif credits.refilled_at > moment + interval '1 day' then
    credits.refilled_at := refill;
  end if;
  return credits;
end $$;
