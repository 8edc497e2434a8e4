#include "optim/groups.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace ms::optim {

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, star = std::string_view::npos, from = 0;  // the last star, and the name's text behind it
  for (std::size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++, from = i;
    } else if (at < pattern.size() && pattern[at] == name[i]) {
      ++at, ++i;
    } else if (star != std::string_view::npos) {  // it stands for one character more; those before need not
      at = star + 1, i = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

ParamGroup parse_group(std::string_view entry) {
  const auto refuse = [&](std::string_view why) {
    return user_error("optim.group", fmt::format("'{}' is not a parameter group: {}", entry, why),
                      "write \"PATTERN lr=X weight_decay=Y\", as in \"embed.* lr=0.1 weight_decay=0\"");
  };
  std::vector<std::string> words;
  for (std::string& word : split(entry, ' ')) {
    if (!word.empty()) words.push_back(std::move(word));
  }
  if (words.size() < 2) throw refuse("it takes a pattern of names, and lr, weight_decay or both");
  ParamGroup group{.pattern = words.front()};
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i], key = word.substr(0, word.find('='));
    const std::string_view text = word.substr(std::min(word.size(), key.size() + 1));
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (key != "lr" && key != "weight_decay") throw refuse(fmt::format("'{}' is neither lr nor weight_decay", key));
    if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0 && value <= 1e3))
      throw refuse(fmt::format("{} takes a number from 0 to 1000", key));
    if (key == "lr") {
      group.lr = value;
    } else {
      group.weight_decay = value;
    }
  }
  return group;
}

std::vector<ParamGroup> parse_groups(const OptimConfig& config) {
  std::vector<ParamGroup> groups;
  for (const std::string& entry : config.groups) groups.push_back(parse_group(entry));
  return groups;
}

Rates rates_of(const OptimConfig& config, const std::vector<ParamGroup>& groups, std::string_view name, bool decay) {
  Rates rates{.weight_decay = decay ? config.weight_decay : 0.0};
  for (const ParamGroup& group : groups) {
    if (!matches(group.pattern, name)) continue;
    return {.lr = group.lr, .weight_decay = group.weight_decay.value_or(rates.weight_decay)};
  }
  return rates;
}

}  // namespace ms::optim
