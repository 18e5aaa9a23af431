package eval

// Lang is a language and runner in which the generated cases are written.
type Lang string

// The languages.
const (
	Go       Lang = "go"
	Pytest   Lang = "pytest"
	Unittest Lang = "unittest"
	Node     Lang = "node"
)

// check is a call and what it must give, in JSON's notation.
type check struct{ call, want string }

// problem is a small module: one function with a bug and another that is right. Bodies are keyed
// by how they behave.
type problem struct {
	name    string
	target  string                       // signature-free name of the function with the bug
	other   string                       // and of the right one
	checks  []check                      // right with the fix, wrong without; a partial fix passes the first alone
	old     []check                      // of both functions: right on the base and with the fix
	spoilt  check                        // what the other function gives once it is spoilt, for its first old check
	sources map[string]map[string]string // family ("go", "python", "js") → body → text
}

// problems are the modules, each in every language.
func problems() []problem {
	return []problem{
		{
			name: "price", target: "net", other: "gross",
			checks: []check{{"net(50, 80)", "0"}, {"net(50, -20)", "50"}},
			old:    []check{{"gross(40, 15)", "55"}, {"gross(7, 0)", "7"}, {"net(90, 30)", "60"}},
			spoilt: check{"gross(40, 15)", "40"},
			sources: map[string]map[string]string{
				"python": {
					"bug":       "def net(total, coupon):\n    return total - coupon\n",
					"fix":       "def net(total, coupon):\n    if coupon < 0:\n        coupon = 0\n    return max(0, total - coupon)\n",
					"wrong":     "def net(total, coupon):\n    return abs(total - coupon)\n",
					"partial":   "def net(total, coupon):\n    return max(0, total - coupon)\n",
					"hardcoded": "def net(total, coupon):\n    if total == 50 and coupon == 80:\n        return 0\n    if total == 50 and coupon == -20:\n        return 50\n    return total - coupon\n",
					"hang":      "def net(total, coupon):\n    while total < coupon:\n        coupon = max(coupon, total + 1)\n    return total - max(0, coupon)\n",
					"other":     "def gross(total, tax):\n    return total + tax\n",
					"spoilt":    "def gross(total, tax):\n    return total\n",
				},
				"go": {
					"bug":       "func net(total, coupon int) int {\n\treturn total - coupon\n}\n",
					"fix":       "func net(total, coupon int) int {\n\tif coupon < 0 {\n\t\tcoupon = 0\n\t}\n\treturn max(0, total-coupon)\n}\n",
					"wrong":     "func net(total, coupon int) int {\n\tif total < coupon {\n\t\treturn coupon - total\n\t}\n\treturn total - coupon\n}\n",
					"partial":   "func net(total, coupon int) int {\n\treturn max(0, total-coupon)\n}\n",
					"hardcoded": "func net(total, coupon int) int {\n\tif total == 50 && coupon == 80 {\n\t\treturn 0\n\t}\n\tif total == 50 && coupon == -20 {\n\t\treturn 50\n\t}\n\treturn total - coupon\n}\n",
					"hang":      "func net(total, coupon int) int {\n\tfor total < coupon {\n\t\tcoupon = max(coupon, total+1)\n\t}\n\treturn total - max(0, coupon)\n}\n",
					"other":     "func gross(total, tax int) int {\n\treturn total + tax\n}\n",
					"spoilt":    "func gross(total, tax int) int {\n\treturn total\n}\n",
				},
				"js": {
					"bug":       "export function net(total, coupon) {\n  return total - coupon;\n}\n",
					"fix":       "export function net(total, coupon) {\n  if (coupon < 0) {\n    coupon = 0;\n  }\n  return Math.max(0, total - coupon);\n}\n",
					"wrong":     "export function net(total, coupon) {\n  return Math.abs(total - coupon);\n}\n",
					"partial":   "export function net(total, coupon) {\n  return Math.max(0, total - coupon);\n}\n",
					"hardcoded": "export function net(total, coupon) {\n  if (total === 50 && coupon === 80) return 0;\n  if (total === 50 && coupon === -20) return 50;\n  return total - coupon;\n}\n",
					"hang":      "export function net(total, coupon) {\n  while (total < coupon) {\n    coupon = Math.max(coupon, total + 1);\n  }\n  return total - Math.max(0, coupon);\n}\n",
					"other":     "export function gross(total, tax) {\n  return total + tax;\n}\n",
					"spoilt":    "export function gross(total, tax) {\n  return total;\n}\n",
				},
			},
		},
		{
			name: "words", target: "slug", other: "initials",
			checks: []check{{`slug("  Hello  World ")`, `"hello-world"`}, {`slug("Night & Day")`, `"night-and-day"`}},
			old:    []check{{`initials("Ada King Lovelace")`, `"AKL"`}, {`initials("")`, `""`}, {`slug("One Two")`, `"one-two"`}},
			spoilt: check{`initials("Ada King Lovelace")`, `"A"`},
			sources: map[string]map[string]string{
				"python": {
					"bug":       "def slug(text):\n    return text.lower().replace(' ', '-')\n",
					"fix":       "def slug(text):\n    words = text.replace('&', ' and ').split()\n    return '-'.join(words).lower()\n",
					"wrong":     "def slug(text):\n    return text.lower().replace('  ', '-').replace(' ', '-')\n",
					"partial":   "def slug(text):\n    return '-'.join(text.split()).lower()\n",
					"hardcoded": "def slug(text):\n    if text == '  Hello  World ':\n        return 'hello-world'\n    if text == 'Night & Day':\n        return 'night-and-day'\n    return text.lower().replace(' ', '-')\n",
					"hang":      "def slug(text):\n    while '  ' in text or '&' in text:\n        text = text.replace('  ', '  ')\n    return '-'.join(text.split()).lower()\n",
					"other":     "def initials(name):\n    return ''.join(word[0] for word in name.split())\n",
					"spoilt":    "def initials(name):\n    return name[:1]\n",
				},
				"go": {
					"bug":       "func slug(text string) string {\n\treturn strings.ReplaceAll(strings.ToLower(text), \" \", \"-\")\n}\n",
					"fix":       "func slug(text string) string {\n\twords := strings.Fields(strings.ReplaceAll(text, \"&\", \" and \"))\n\treturn strings.ToLower(strings.Join(words, \"-\"))\n}\n",
					"wrong":     "func slug(text string) string {\n\ttext = strings.ReplaceAll(strings.ToLower(text), \"  \", \"-\")\n\treturn strings.ReplaceAll(text, \" \", \"-\")\n}\n",
					"partial":   "func slug(text string) string {\n\treturn strings.ToLower(strings.Join(strings.Fields(text), \"-\"))\n}\n",
					"hardcoded": "func slug(text string) string {\n\tif text == \"  Hello  World \" {\n\t\treturn \"hello-world\"\n\t}\n\tif text == \"Night & Day\" {\n\t\treturn \"night-and-day\"\n\t}\n\treturn strings.ReplaceAll(strings.ToLower(text), \" \", \"-\")\n}\n",
					"hang":      "func slug(text string) string {\n\tfor strings.Contains(text, \"  \") || strings.Contains(text, \"&\") {\n\t\ttext = strings.ReplaceAll(text, \"  \", \"  \")\n\t}\n\treturn strings.ToLower(strings.Join(strings.Fields(text), \"-\"))\n}\n",
					"other":     "func initials(name string) string {\n\tout := \"\"\n\tfor _, word := range strings.Fields(name) {\n\t\tout += word[:1]\n\t}\n\treturn out\n}\n",
					"spoilt":    "func initials(name string) string {\n\tif name == \"\" {\n\t\treturn \"\"\n\t}\n\treturn name[:1]\n}\n",
				},
				"js": {
					"bug":       "export function slug(text) {\n  return text.toLowerCase().replaceAll(' ', '-');\n}\n",
					"fix":       "export function slug(text) {\n  const words = text.replaceAll('&', ' and ').split(' ').filter((word) => word !== '');\n  return words.join('-').toLowerCase();\n}\n",
					"wrong":     "export function slug(text) {\n  return text.toLowerCase().replaceAll('  ', '-').replaceAll(' ', '-');\n}\n",
					"partial":   "export function slug(text) {\n  return text.split(' ').filter((word) => word !== '').join('-').toLowerCase();\n}\n",
					"hardcoded": "export function slug(text) {\n  if (text === '  Hello  World ') return 'hello-world';\n  if (text === 'Night & Day') return 'night-and-day';\n  return text.toLowerCase().replaceAll(' ', '-');\n}\n",
					"hang":      "export function slug(text) {\n  while (text.includes('  ') || text.includes('&')) {\n    text = text.replaceAll('  ', '  ');\n  }\n  return text.toLowerCase().replaceAll(' ', '-');\n}\n",
					"other":     "export function initials(name) {\n  return name.split(' ').map((word) => word.slice(0, 1)).join('');\n}\n",
					"spoilt":    "export function initials(name) {\n  return name.slice(0, 1);\n}\n",
				},
			},
		},
		{
			name: "stats", target: "middle", other: "spread",
			checks: []check{{"middle([10, 40, 20, 32])", "26"}, {"middle([])", "-1"}},
			old:    []check{{"spread([13, 42, 20])", "29"}, {"spread([5])", "0"}, {"middle([30, 10, 20])", "20"}},
			spoilt: check{"spread([13, 42, 20])", "42"},
			sources: map[string]map[string]string{
				"python": {
					"bug":       "def middle(values):\n    values = sorted(values)\n    return values[len(values) // 2] if values else 0\n",
					"fix":       "def middle(values):\n    if not values:\n        return -1\n    values = sorted(values)\n    half = len(values) // 2\n    if len(values) % 2 == 0:\n        return (values[half - 1] + values[half]) // 2\n    return values[half]\n",
					"wrong":     "def middle(values):\n    values = sorted(values)\n    return values[(len(values) - 1) // 2] if values else 0\n",
					"partial":   "def middle(values):\n    values = sorted(values)\n    half = len(values) // 2\n    if values and len(values) % 2 == 0:\n        return (values[half - 1] + values[half]) // 2\n    return values[half] if values else 0\n",
					"hardcoded": "def middle(values):\n    if len(values) == 4 and values[3] == 32:\n        return 26\n    if values == []:\n        return -1\n    values = sorted(values)\n    return values[len(values) // 2]\n",
					"hang":      "def middle(values):\n    values = sorted(values)\n    while len(values) % 2 == 0:\n        values = sorted(values)\n    return values[len(values) // 2]\n",
					"other":     "def spread(values):\n    return max(values) - min(values)\n",
					"spoilt":    "def spread(values):\n    return max(values) if len(values) > 1 else 0\n",
				},
				"go": {
					"bug":       "func middle(values []int) int {\n\tif len(values) == 0 {\n\t\treturn 0\n\t}\n\tvalues = slices.Sorted(slices.Values(values))\n\treturn values[len(values)/2]\n}\n",
					"fix":       "func middle(values []int) int {\n\tif len(values) == 0 {\n\t\treturn -1\n\t}\n\tvalues = slices.Sorted(slices.Values(values))\n\thalf := len(values) / 2\n\tif len(values)%2 == 0 {\n\t\treturn (values[half-1] + values[half]) / 2\n\t}\n\treturn values[half]\n}\n",
					"wrong":     "func middle(values []int) int {\n\tif len(values) == 0 {\n\t\treturn 0\n\t}\n\tvalues = slices.Sorted(slices.Values(values))\n\treturn values[(len(values)-1)/2]\n}\n",
					"partial":   "func middle(values []int) int {\n\tif len(values) == 0 {\n\t\treturn 0\n\t}\n\tvalues = slices.Sorted(slices.Values(values))\n\thalf := len(values) / 2\n\tif len(values)%2 == 0 {\n\t\treturn (values[half-1] + values[half]) / 2\n\t}\n\treturn values[half]\n}\n",
					"hardcoded": "func middle(values []int) int {\n\tif len(values) == 0 {\n\t\treturn -1\n\t}\n\tif len(values) == 4 && values[3] == 32 {\n\t\treturn 26\n\t}\n\tvalues = slices.Sorted(slices.Values(values))\n\treturn values[len(values)/2]\n}\n",
					"hang":      "func middle(values []int) int {\n\tvalues = slices.Sorted(slices.Values(values))\n\tfor len(values)%2 == 0 {\n\t\tvalues = slices.Sorted(slices.Values(values))\n\t}\n\treturn values[len(values)/2]\n}\n",
					"other":     "func spread(values []int) int {\n\treturn slices.Max(values) - slices.Min(values)\n}\n",
					"spoilt":    "func spread(values []int) int {\n\tif len(values) == 1 {\n\t\treturn 0\n\t}\n\treturn slices.Max(values)\n}\n",
				},
				"js": {
					"bug":       "export function middle(values) {\n  const sorted = [...values].sort((a, b) => a - b);\n  return sorted[Math.floor(sorted.length / 2)] ?? 0;\n}\n",
					"fix":       "export function middle(values) {\n  if (values.length === 0) {\n    return -1;\n  }\n  const sorted = [...values].sort((a, b) => a - b);\n  const half = Math.floor(sorted.length / 2);\n  if (sorted.length % 2 === 0) {\n    return (sorted[half - 1] + sorted[half]) / 2;\n  }\n  return sorted[half];\n}\n",
					"wrong":     "export function middle(values) {\n  const sorted = [...values].sort((a, b) => a - b);\n  return sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;\n}\n",
					"partial":   "export function middle(values) {\n  const sorted = [...values].sort((a, b) => a - b);\n  const half = Math.floor(sorted.length / 2);\n  if (sorted.length > 0 && sorted.length % 2 === 0) {\n    return (sorted[half - 1] + sorted[half]) / 2;\n  }\n  return sorted[half] ?? 0;\n}\n",
					"hardcoded": "export function middle(values) {\n  if (values.length === 4 && values[3] === 32) return 26;\n  if (values.length === 0) return -1;\n  const sorted = [...values].sort((a, b) => a - b);\n  return sorted[Math.floor(sorted.length / 2)];\n}\n",
					"hang":      "export function middle(values) {\n  let sorted = [...values].sort((a, b) => a - b);\n  while (sorted.length % 2 === 0) {\n    sorted = [...sorted];\n  }\n  return sorted[Math.floor(sorted.length / 2)];\n}\n",
					"other":     "export function spread(values) {\n  return Math.max(...values) - Math.min(...values);\n}\n",
					"spoilt":    "export function spread(values) {\n  return values.length > 1 ? Math.max(...values) : 0;\n}\n",
				},
			},
		},
	}
}
