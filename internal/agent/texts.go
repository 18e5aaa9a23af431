package agent

import (
	"fmt"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// What a notice is about.
const (
	noticeBudget = "budget"
	noticeStuck  = "stuck"
	noticeIdle   = "idle"
	noticeCut    = "cut"
)

const (
	idleText        = "You ended your turn without calling a tool. The task is still open: go on working, or finish it with `submit` (a change that fixes the issue, with a test that reproduces it) or `decline` (an honest no with the reason)."
	cutText         = "Your reply was cut by the length limit, so nothing of it was executed. Split the work: shorter text, one call at a time, large files in several edits."
	interruptedText = "Interrupted: the worker restarted while this call was running. It may or may not have taken effect, in whole or in part. Look at the files before you go on."
)

func stuckText(n int) string {
	return fmt.Sprintf("The last call has now given the same result %d times. Doing it again will not change anything. Step back: what have you assumed that the results contradict? Try another way, or `decline` with what you found.", n)
}

func budgetText(m task.Meter) string {
	return fmt.Sprintf("Budget notice: %s used. At the limit the task stops where it is. Finish what matters now: `submit` if you have a fix, else `decline` with what you found.", m)
}

func badJSONText(raw string) string {
	if len(raw) > 300 {
		raw = raw[:300] + "…"
	}
	return fmt.Sprintf("The arguments of this call are not a JSON object, so it was not executed. They began with: %q. Send it again with valid JSON (escape quotes, backslashes and line breaks in strings).", raw)
}
