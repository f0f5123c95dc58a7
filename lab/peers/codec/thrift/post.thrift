// What a social network keeps of a post: the fields of DeathStarBench's `Post`, by their ids.
namespace rs social

enum PostType { POST, REPOST, REPLY, DM }

struct Creator { 1: i64 user_id, 2: string username }
struct UserMention { 1: i64 user_id, 2: string username }
struct Media { 1: i64 media_id, 2: string media_type }
struct Url { 1: string shortened_url, 2: string expanded_url }

struct Post {
  1: i64 post_id
  2: Creator creator
  3: i64 req_id
  4: string text
  5: list<UserMention> user_mentions
  6: list<Media> media
  7: list<Url> urls
  8: i64 timestamp
  9: PostType post_type
}
