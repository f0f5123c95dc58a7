// The structs of tests/thrift.rs.
union Choice {
  1: i64 number
  2: list<string> many
  3: All all
}

struct All {
  1: optional bool truth
  2: optional i8 small
  3: optional i16 short
  4: optional i32 number
  5: optional i64 long
  6: optional double real
  7: optional string text
  8: optional binary raw
  9: optional uuid id
  10: optional Choice choice
  11: optional Sort kind
  12: optional list<bool> truths
  13: optional set<i8> smalls
  14: optional list<list<i32>> grid
  15: optional map<string, list<All>> groups
  40: optional map<set<i16>, map<bool, double>> keyed
  56: optional i32 far
  -1: optional i32 before
  0: optional i32 zero
  1000: optional set<uuid> ids
}

enum Sort { NONE }

struct Needs {
  1: required i32 must
  2: required list<i32> list
  3: string usual
  4: map<i32, All> map
  5: All inner
  6: i32 preset = 1
  7: bool flag
  8: optional list<i32> maybe
}
