// Reading hostlists: a small recursive-descent reader over one name with its brackets, bounded before it allocates.
// Writing them: names grouped by what stands before their last digits.
#include "slurm/hostlist.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/number.h"

namespace ms::slurm {
namespace {

constexpr std::size_t kMaxNameChars = 253;
constexpr std::size_t kMaxDigits = 18;  // what a 64-bit number holds whatever its digits

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

std::optional<std::uint64_t> parse_digits(std::string_view text) {
  if (text.empty() || text.size() > kMaxDigits || !std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  return whole_number<std::uint64_t>(text);
}

// "07" or "01-04": all numbers of it, as wide as the first one is written.
bool append_range(std::string_view text, std::vector<std::string>& numbers) {
  const std::size_t dash = text.find('-');
  const std::string_view first_text = text.substr(0, dash);
  const auto first = parse_digits(first_text);
  const auto last = dash == std::string_view::npos ? first : parse_digits(text.substr(dash + 1));
  if (!first || !last || *last < *first || *last - *first >= kMaxHosts - numbers.size()) return false;
  for (std::uint64_t i = *first; i <= *last; ++i) numbers.push_back(fmt::format("{:0{}}", i, first_text.size()));
  return true;
}

// The inside of a bracket.
std::optional<std::vector<std::string>> expand_ranges(std::string_view text) {
  std::vector<std::string> numbers;
  for (;;) {
    const std::size_t comma = text.find(',');
    if (!append_range(text.substr(0, comma), numbers)) return std::nullopt;
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

// Every name so far continued by every one of the endings, the names' order first.
bool multiply(std::vector<std::string>& names, const std::vector<std::string>& endings) {
  if (names.size() * endings.size() > kMaxHosts) return false;
  if (names.front().size() + endings.front().size() > kMaxNameChars) return false;
  std::vector<std::string> result;
  result.reserve(names.size() * endings.size());
  for (const std::string& name : names) {
    for (const std::string& ending : endings) result.push_back(name + ending);
  }
  names = std::move(result);
  return true;
}

// One element of the list: plain text and brackets in turn.
std::optional<std::vector<std::string>> expand_element(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::vector<std::string> names{""};
  while (!text.empty()) {
    std::vector<std::string> endings;
    std::size_t used = 0;
    if (text.front() == '[') {
      const std::size_t close = text.find(']');
      if (close == std::string_view::npos) return std::nullopt;
      auto numbers = expand_ranges(text.substr(1, close - 1));
      if (!numbers) return std::nullopt;
      endings = std::move(*numbers);
      used = close + 1;
    } else {
      while (used < text.size() && is_name_char(text[used])) ++used;
      if (used == 0) return std::nullopt;
      endings.emplace_back(text.substr(0, used));
    }
    if (!multiply(names, endings)) return std::nullopt;
    text.remove_prefix(used);
  }
  if (!std::all_of(names.begin(), names.end(), [](const std::string& name) { return is_host_name(name); })) {
    return std::nullopt;
  }
  return names;
}

// Where the element at the front of the text ends: the first comma outside brackets.
std::size_t element_end(std::string_view text) {
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') inside = true;
    if (text[i] == ']') inside = false;
    if (text[i] == ',' && !inside) return i;
  }
  return text.size();
}

struct Number {
  std::uint64_t value = 0;
  std::string text;
  auto operator<=>(const Number&) const = default;
};

bool follows(const Number& number, const Number& before, std::size_t width) {
  return number.value == before.value + 1 && number.text == fmt::format("{:0{}}", number.value, width);
}

// Sorted numbers as "1-3,07"; a single number stands without brackets.
std::string fold_numbers(const std::vector<Number>& numbers) {
  if (numbers.size() == 1) return numbers.front().text;
  std::string result = "[";
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && follows(numbers[last + 1], numbers[last], numbers[i].text.size())) ++last;
    if (i > 0) result += ',';
    result += numbers[i].text;
    if (last > i) result += '-' + numbers[last].text;
    i = last + 1;
  }
  return result + ']';
}

}  // namespace

bool is_host_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameChars && std::all_of(text.begin(), text.end(), is_name_char);
}

std::optional<std::vector<std::string>> expand_hostlist(std::string_view text) {
  std::vector<std::string> hosts;
  while (!text.empty()) {
    const std::size_t end = element_end(text);
    auto names = expand_element(text.substr(0, end));
    if (!names || names->size() > kMaxHosts - hosts.size()) return std::nullopt;
    hosts.insert(hosts.end(), std::make_move_iterator(names->begin()), std::make_move_iterator(names->end()));
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
    if (text.empty()) return std::nullopt;  // a comma at the end
  }
  return hosts;
}

std::vector<std::string> expand_hostlist_or_throw(std::string_view text) {
  auto hosts = expand_hostlist(text);
  if (hosts) return std::move(*hosts);
  constexpr std::size_t kShown = 200;
  throw user_error(
      "slurm.hostlist",
      fmt::format("'{}{}' is not a list of hosts", text.substr(0, kShown), text.size() > kShown ? "..." : ""),
      "write node01,node02 or node[01-04,07]");
}

std::string fold_hostlist(std::span<const std::string> hosts) {
  std::map<std::string, std::vector<Number>, std::less<>> numbers_by_prefix;
  std::vector<std::string> folded;
  for (const std::string& host : hosts) {
    std::size_t digits = 0;
    while (digits < host.size() && digits < kMaxDigits && is_digit(host[host.size() - 1 - digits])) ++digits;
    const std::string tail = host.substr(host.size() - digits);
    if (const auto value = parse_digits(tail)) {
      numbers_by_prefix[host.substr(0, host.size() - digits)].push_back({*value, tail});
    } else {
      folded.push_back(host);
    }
  }
  for (auto& [prefix, numbers] : numbers_by_prefix) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    folded.push_back(prefix + fold_numbers(numbers));
  }
  std::sort(folded.begin(), folded.end());
  folded.erase(std::unique(folded.begin(), folded.end()), folded.end());
  return fmt::format("{}", fmt::join(folded, ","));
}

}  // namespace ms::slurm
