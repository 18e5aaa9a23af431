package tamper

// Analyse compares the old and new text of every file. classify says which part of the change
// a path is; [Classify] is the usual one. Cost is linear in the text, with each file read up to 4 MiB.
func Analyse(changes []FileChange, classify func(path string) Class) Result { return Result{} }

// Classify says which part of a change the path belongs to; extraTestGlobs are patterns of
// tests beside the ecosystem's own ("**" spans directories).
func Classify(path string, extraTestGlobs []string) Class { return ClassOther }
