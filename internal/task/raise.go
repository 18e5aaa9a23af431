package task

import (
	"fmt"
	"time"
)

// Raise returns the limits with those that asked names (0 names none) in their place. A limit is
// only ever raised, never above most, in which 0 means that it cannot be raised. Errors are of
// class [Invalid].
func (l Limits) Raise(asked, most Limits) (Limits, error) {
	if asked == (Limits{}) {
		return l, &Error{Class: Invalid, Msg: "nothing was asked for", Fix: "name a new total, such as 20 dollars"}
	}
	for _, m := range []struct {
		name               string
		now                *int64
		asked, most, scale int64
	}{
		{"dollars", (*int64)(&l.Cost), int64(asked.Cost), int64(most.Cost), 1e6},
		{"tokens", &l.Tokens, asked.Tokens, most.Tokens, 1},
		{"seconds", (*int64)(&l.Wall), int64(asked.Wall), int64(most.Wall), int64(time.Second)},
		{"input tokens", &l.Class.Input, asked.Class.Input, most.Class.Input, 1},
		{"output tokens", &l.Class.Output, asked.Class.Output, most.Class.Output, 1},
		{"cache reads", &l.Class.CacheRead, asked.Class.CacheRead, most.Class.CacheRead, 1},
		{"cache writes", &l.Class.CacheWrite, asked.Class.CacheWrite, most.Class.CacheWrite, 1},
	} {
		if err := raise(m.name, m.now, m.asked, m.most, m.scale); err != nil {
			return l, err
		}
	}
	steps := int64(l.Steps)
	err := raise("steps", &steps, int64(asked.Steps), int64(most.Steps), 1)
	l.Steps = int(steps)
	return l, err
}

func raise(name string, now *int64, asked, most, scale int64) error {
	shown := func(n int64) string { return fmt.Sprintf("%g %s", float64(n)/float64(scale), name) }
	switch {
	case asked == 0:
		return nil
	case *now == 0:
		return &Error{Class: Invalid, Msg: "the budget has no limit in " + name}
	case asked <= *now:
		return &Error{Class: Invalid, Msg: fmt.Sprintf("the budget is %s already; it is only ever raised", shown(*now))}
	case asked > most:
		return &Error{Class: Invalid, Msg: fmt.Sprintf("%s are more than the %s that the operator allows", shown(asked), shown(most)), Fix: "ask for less, or change budget_most"}
	}
	*now = asked
	return nil
}
