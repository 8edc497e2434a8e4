// The words and numbers of JSON traces, as they are written: texts that come again and again get numbers, numbers are
// read exactly. Pure; used by the readers of JSON formats, for every event.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ms::tracepp {

// Texts, numbered from 0 as they are met.
class TextIds {
 public:
  std::uint32_t id(std::string_view text);
  const std::string& text(std::uint32_t id) const { return texts_[id]; }
  std::size_t size() const { return texts_.size(); }

 private:
  struct Place {
    std::uint64_t hash = 0;
    std::uint32_t id = 0;
    bool used = false;
  };
  std::vector<Place> places_ = std::vector<Place>(1024);
  std::deque<std::string> texts_;
};

// Microseconds as they are written, to nanoseconds, exactly but for digits beyond. False: not a number, or too large.
bool parse_us(std::string_view token, std::int64_t& ns);
// An integer that fits; a fraction of zeros is fine. Quotes around it too.
std::optional<std::int64_t> parse_int(std::string_view token);

}  // namespace ms::tracepp
