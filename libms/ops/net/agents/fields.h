// Parses the words of another agent's line strictly: a malformed or out-of-range number is an error, not a guess.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/number.h"
#include "base/text.h"

namespace ms::net {

// Throws Error("net.peer", fabric) for a missing or malformed word.
class Fields {
 public:
  explicit Fields(std::string_view line) : words_(split(line, ' ')) {}
  std::string next() {
    if (at_ >= words_.size()) throw malformed();
    return words_[at_++];
  }
  template <class T>
  T number(T least, T most) {
    const auto value = whole_number<T>(next());
    if (!value || !(*value >= least && *value <= most)) throw malformed();
    return *value;
  }
  // Returns the next word as a duration, at most the longest that an agent may be asked for.
  double seconds() { return number<double>(0, 200); }

 private:
  static Error malformed() { return Error("net.peer", Blame::fabric, "the other agent says what is not understood"); }
  std::vector<std::string> words_;
  std::size_t at_ = 0;
};

}  // namespace ms::net
