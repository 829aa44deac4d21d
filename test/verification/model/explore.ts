/** A machine with finitely many states, each with a unique key. */
export interface Machine<State, Event> {
  readonly initial: State;
  key(state: State): number;
  /** Announces every step that is possible from this state. */
  step(state: State, announce: Announce<State, Event>): void;
}

/** @param wrong whether the step breaks the guarantee */
export type Announce<State, Event> = (event: Event, next: State, wrong?: boolean) => void;

export interface Exploration<Event> {
  readonly states: number;
  /** All events that occurred in some state, so that a proof can be distinguished from an empty one. */
  readonly events: ReadonlySet<Event>;
  /** The shortest trace that breaks the guarantee, if there is any. */
  readonly violation: readonly Event[] | undefined;
}

/** Visits every reachable state, breadth first, until a step is wrong. */
export function explore<State, Event>(machine: Machine<State, Event>): Exploration<Event> {
  const events = new Set<Event>();
  const initialKey = machine.key(machine.initial);
  const cameFrom = new Map<number, number | undefined>([[initialKey, undefined]]);
  let violation: Event[] | undefined;
  let frontier = [machine.initial];
  while (frontier.length > 0 && !violation) {
    const following: State[] = [];
    for (const state of frontier) {
      if (violation) break;
      const from = machine.key(state);
      machine.step(state, (event, next, wrong = false) => {
        events.add(event);
        if (wrong) violation ??= [...eventsOn(machine, pathTo(from, cameFrom)), event];
        const key = machine.key(next);
        if (cameFrom.has(key)) return;
        cameFrom.set(key, from);
        following.push(next);
      });
    }
    frontier = following;
  }
  return { states: cameFrom.size, events, violation };
}

function pathTo(key: number, cameFrom: ReadonlyMap<number, number | undefined>): number[] {
  const path: number[] = [];
  for (let at: number | undefined = key; at !== undefined; at = cameFrom.get(at)) path.unshift(at);
  return path.slice(1);
}

/** Repeats the steps of the path: storing an event with each of a million states would cost more than the states. */
function eventsOn<State, Event>(machine: Machine<State, Event>, path: readonly number[]): Event[] {
  let state = machine.initial;
  return path.map((key) => {
    const found: { event: Event; next: State }[] = [];
    machine.step(state, (event, next) => {
      if (found.length === 0 && machine.key(next) === key) found.push({ event, next });
    });
    const [step] = found;
    if (!step) throw new Error("the machine took another step from the same state");
    state = step.next;
    return step.event;
  });
}
