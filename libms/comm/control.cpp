#include "comm/control.h"

#include <charconv>

#include "comm/store.h"

namespace ms::comm {
namespace {

// A message is a letter, then fields that end with a zero byte; the last one is the rest.
constexpr char kStop = 'A', kValue = 'S';
constexpr std::size_t kMaxTextBytes = 8 << 10;  // of each text of an error
static_assert(kMaxStoreKeyBytes + kMaxStoreValueBytes + 2 <= kMaxControlBytes);

std::optional<std::string> next_field(std::string_view& rest) {
  const std::size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  std::string field(rest.substr(0, end));
  rest.remove_prefix(end + 1);
  return field;
}

std::optional<int> number_in(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Error> parse_stop(std::string_view text) {
  std::optional<std::string> fields[5];  // kind, blame, rank, operation, hint
  for (auto& field : fields) {
    field = next_field(text);
    if (!field) return std::nullopt;
  }
  const std::optional<int> blame = number_in(*fields[1]);
  if (!blame || *blame < 0 || *blame > static_cast<int>(Blame::bug)) return std::nullopt;
  Error error(*fields[0], static_cast<Blame>(*blame), std::string(text), *fields[4]);
  if (!fields[3]->empty()) error = error.with_operation(*fields[3]);
  if (!fields[2]->empty()) {
    const std::optional<int> rank = number_in(*fields[2]);
    if (!rank) return std::nullopt;
    error = error.with_rank(*rank);
  }
  return error;
}

}  // namespace

std::string stop_message(const Error& error) {
  std::string text(1, kStop);
  const auto add = [&](std::string_view field) {
    field = field.substr(0, kMaxTextBytes);
    text.append(field.substr(0, field.find('\0'))).push_back('\0');
  };
  add(error.kind());
  add(std::to_string(static_cast<int>(error.blame())));
  add(error.rank() ? std::to_string(*error.rank()) : "");
  add(error.operation());
  add(error.hint());
  return text.append(error.message(), 0, kMaxTextBytes);
}

std::string value_message(const std::string& key, const std::string& value) {
  return fmt::format("{}{}{}{}", kValue, key, '\0', value);
}

std::optional<std::variant<Error, PublishedValue>> parse_control(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const char letter = text[0];
  text.remove_prefix(1);
  if (letter == kStop) {
    if (std::optional<Error> error = parse_stop(text)) return *std::move(error);
  } else if (letter == kValue) {
    if (std::optional<std::string> key = next_field(text)) {
      return PublishedValue{*std::move(key), std::string(text)};
    }
  }
  return std::nullopt;
}

}  // namespace ms::comm
