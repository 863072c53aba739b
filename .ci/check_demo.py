"""Whether the demo learned, and finished for good: python .ci/check_demo.py SUMMARY SUMMARY_OF_THE_SAME_COMMAND"""

import json
import sys

first, second = map(json.loads, sys.argv[1:])
before, after = (first[when]["accuracy"] for when in ("before", "after"))
if not before < 0.3 < 0.95 < after:
    sys.exit(f"the demo did not learn: accuracy {before:.1%} before, {after:.1%} after {first['steps']} steps")
if second != first:
    sys.exit("the finished run's command, given again, told something else")
print(f"accuracy {before:.1%} before, {after:.1%} after {first['steps']} steps")
