#include "data/json_lines.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace ms::data {

bool looks_like_json_lines(std::string_view head, std::string_view path) {
  if (path.ends_with(".gz")) path.remove_suffix(3);
  const bool named_so = path.ends_with(".jsonl") || path.ends_with(".ndjson");
  constexpr int kEnough = 2;
  int objects = 0;
  while (!head.empty() && objects < kEnough) {
    const std::size_t end = std::min(head.find('\n'), head.size());
    const std::string_view line = trim(head.substr(0, end));
    head.remove_prefix(std::min(end + 1, head.size()));
    if (line.empty()) continue;
    if (!line.starts_with('{')) return false;
    if (!Json::try_parse(line)) return named_so;  // the head may end in it
    ++objects;
  }
  return objects == kEnough || (objects > 0 && named_so);
}

}  // namespace ms::data
