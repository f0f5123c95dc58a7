/* Every kind of field,
   and every kind of comment. */
# This too.
include "shared.thrift"
namespace rs every.thrift
namespace py.twisted nobody.asks
cpp_include "nothing.h"

const i32 LIMIT = 0x7f;
const map<string, list<double>> TABLE = {"a": [1, 2.5e-3], 'b\'s': [-1.0, +4]}
const shared.Color BEST = shared.Color.GREEN

typedef list<map<string, shared.Time>> Log (note = "typedefs are followed")

union Choice {
  1: i64 number
  2: list<string> many;
  3: All all,
  4: bool truth
}

struct All {
  1: optional bool truth
  2: optional byte small,
  3: optional i16 short;
  4: optional i32 number (a, b = "c")
  5: optional i64 long
  6: optional double real
  7: optional string text
  8: optional binary raw
  9: optional uuid id
  10: optional Choice choice
  11: optional shared.Color color
  12: optional list<bool> truths
  13: optional set<i8> smalls
  14: optional list<list<i32>> grid
  15: optional map<string, list<All>> groups
  16: optional Log type = [{"a": 1}]
  -4: optional set<double> reals
  300: optional map<Choice, set<binary>> keyed
}

struct Usual {
  1: required i32 must
  2: string text
  3: list<i16> shorts
  4: i32 preset = LIMIT
  5: All inner
  6: shared.Color color = shared.Color.BLUE
  bool last
}

service Base {
  void ping()
}

service Store extends Base {
  /** Gives what was stored. */
  All get(1: string key, 2: list<shared.Time> times) throws (1: shared.Refused refused),
  oneway void forget(1: required string key)
}
