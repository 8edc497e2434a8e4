// Collects what is wrong with a model, so that one refusal says it all. Thrown once, by who collected.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ms::hf {

class Problems {
 public:
  Problems(std::string kind, std::string what) : kind_(std::move(kind)), what_(std::move(what)) {}
  void add(std::string problem) { list_.push_back(std::move(problem)); }
  void set_hint(std::string hint) { hint_ = std::move(hint); }
  bool empty() const { return list_.empty(); }

  // Error(kind, user): "WHAT: problem", or one problem a line; of many, the first ones and their number.
  void throw_if_any() const {
    constexpr std::size_t kShown = 20;
    if (list_.empty()) return;
    std::string text = what_ + ":";
    for (std::size_t i = 0; i < list_.size() && i < kShown; ++i) text += (list_.size() == 1 ? " " : "\n  ") + list_[i];
    if (list_.size() > kShown) text += fmt::format("\n  and {} more", list_.size() - kShown);
    throw user_error(kind_, text, hint_);
  }

 private:
  std::string kind_, what_, hint_;
  std::vector<std::string> list_;
};

}  // namespace ms::hf
