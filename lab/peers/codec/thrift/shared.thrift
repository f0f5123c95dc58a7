// Included by every.thrift.
namespace * every.shared

typedef i64 Time

enum Color { RED = 1, GREEN, BLUE = 0x10 }

exception Refused {
  1: required string why (go.tag = "why");
  2: Time at
}
