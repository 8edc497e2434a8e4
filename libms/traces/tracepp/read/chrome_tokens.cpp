#include "tracepp/read/chrome_tokens.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/number.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kFarNs = std::int64_t{1} << 61;  // 73 years; sums of two stay in range

// Sixteen bytes a multiplication: names of kernels are long, and every event has one.
std::uint64_t hash_of(std::string_view text) {
  const auto fold = [](std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide wide = static_cast<Wide>(a ^ 0x9e3779b97f4a7c15) * (b ^ 0xd1b54a32d192ed03);
    return static_cast<std::uint64_t>(wide) ^ static_cast<std::uint64_t>(wide >> 64);
  };
  std::uint64_t hash = text.size(), a = 0, b = 0;
  std::size_t i = 0;
  for (; i + 16 <= text.size(); i += 16) {
    std::memcpy(&a, text.data() + i, 8);
    std::memcpy(&b, text.data() + i + 8, 8);
    hash = fold(a ^ hash, b);
  }
  std::array<char, 16> rest{};
  std::memcpy(rest.data(), text.data() + i, text.size() - i);
  std::memcpy(&a, rest.data(), 8);
  std::memcpy(&b, rest.data() + 8, 8);
  return fold(a ^ hash, b);
}

// Some writers put numbers in quotes.
std::string_view unquoted(std::string_view token) {
  const bool is_quoted = token.size() >= 2 && token.front() == '"' && token.back() == '"';
  return is_quoted ? token.substr(1, token.size() - 2) : token;
}

}  // namespace

std::uint32_t TextIds::id(std::string_view text) {
  const std::uint64_t hash = hash_of(text);
  for (std::size_t i = hash & (places_.size() - 1);; i = (i + 1) & (places_.size() - 1)) {
    Place& place = places_[i];
    if (place.used && place.hash == hash && texts_[place.id] == text) return place.id;
    if (place.used) continue;
    const auto id = static_cast<std::uint32_t>(texts_.size());
    texts_.emplace_back(text);
    place = {.hash = hash, .id = id, .used = true};
    if (2 * texts_.size() > places_.size()) {
      std::vector<Place> larger(2 * places_.size());
      for (const Place& old : places_) {
        if (!old.used) continue;
        std::size_t at = old.hash & (larger.size() - 1);
        while (larger[at].used) at = (at + 1) & (larger.size() - 1);
        larger[at] = old;
      }
      places_ = std::move(larger);
    }
    return id;
  }
}

bool parse_us(std::string_view token, std::int64_t& ns) {
  token = unquoted(token);
  const char* at = token.data();
  const char* const end = at + token.size();
  const bool negative = at < end && *at == '-';
  if (negative) ++at;
  std::int64_t value = 0;
  const char* const digits = at;
  while (at < end && *at >= '0' && *at <= '9' && at - digits < 16) value = 10 * value + (*at++ - '0');
  if (at == digits || value > kFarNs / 1000) return false;
  if (at < end && *at == '.') {
    int places = 0;
    for (++at; at < end && *at >= '0' && *at <= '9'; ++at, ++places) {
      if (places < 3) value = 10 * value + (*at - '0');
      if (places == 3 && *at >= '5') ++value;
    }
    for (; places < 3; ++places) value *= 10;
  } else {
    value *= 1000;
  }
  if (at < end) {  // an exponent, or nonsense
    double us = 0;
    const auto [stop, error] = std::from_chars(token.data(), end, us);
    if (error != std::errc{} || stop != end || !(std::abs(us) < static_cast<double>(kFarNs) / 1e3)) return false;
    ns = std::llround(1e3 * us);
    return true;
  }
  if (value > kFarNs) return false;
  ns = negative ? -value : value;
  return true;
}

std::optional<std::int64_t> parse_int(std::string_view token) {
  token = unquoted(token);
  const auto value = take_number<std::int64_t>(token);
  const bool is_whole = token.empty() || (token[0] == '.' && token.find_first_not_of('0', 1) == token.npos);
  return is_whole ? value : std::nullopt;
}

}  // namespace ms::tracepp
