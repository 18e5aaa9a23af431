package event

// Change is the diff of what a task made, as far as it is known: of the change that is proposed
// or waits for an approval, else of what the agent had when its work was last kept. ok is false
// when there is none.
func (s *Summary) Change() (diff Text, ok bool) {
	switch {
	case s.Exported != nil && (s.PullRequest != nil || s.Waits()):
		return s.Exported.Diff, true
	case s.Workspace != nil:
		return s.Workspace.Diff, true
	}
	return Text{}, false
}
