#include "comm/control.h"

#include <charconv>

#include "comm/store.h"

namespace ms::comm {
namespace {

// A control message is a letter, then fields that end with a zero byte; the last field is the rest.
constexpr char kStop = 'A', kValue = 'S', kQuestion = 'Q', kAnswer = 'R';
constexpr std::size_t kMaxTextBytes = 8 << 10;  // of each text of an error
constexpr std::size_t kMaxWhatBytes = 1 << 10;  // of the description of a wait
static_assert(kMaxStoreKeyBytes + kMaxStoreValueBytes + 2 <= kMaxControlBytes);

std::optional<std::string> next_field(std::string_view& rest) {
  const std::size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  std::string field(rest.substr(0, end));
  rest.remove_prefix(end + 1);
  return field;
}

template <class Number = int>
std::optional<Number> number_in(const std::string& text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Error> parse_stop(std::string_view text) {
  std::optional<std::string> fields[6];  // kind, blame, rank, operation, hint, step
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
  if (!fields[5]->empty()) {
    const std::optional<std::int64_t> step = number_in<std::int64_t>(*fields[5]);
    if (!step) return std::nullopt;
    error = error.with_step(*step);
  }
  return error;
}

template <class Number>
bool next_number(std::string_view& rest, Number& number) {
  const std::optional<std::string> field = next_field(rest);
  const std::optional<Number> value = field ? number_in<Number>(*field) : std::nullopt;
  if (value) number = *value;
  return value.has_value();
}

std::optional<Question> parse_question(std::string_view& rest) {
  Question question;
  if (!next_number(rest, question.group) || !next_number(rest, question.sequence) ||
      !next_number(rest, question.old_ms))
    return std::nullopt;
  return question;
}

std::optional<Answer> parse_answer(std::string_view rest) {
  const std::optional<Question> question = parse_question(rest);
  int issued = 0;
  if (!question || !next_number(rest, issued)) return std::nullopt;
  std::optional<std::string> busy = next_field(rest);
  if (!busy) return std::nullopt;
  Answer answer{*question, {.issued = issued != 0, .waits = {}, .busy = *std::move(busy)}};
  while (!rest.empty()) {
    Wait wait;
    int recent = 0;
    if (!next_number(rest, wait.peer) || !next_number(rest, wait.group) || !next_number(rest, wait.sequence) ||
        !next_number(rest, recent))
      return std::nullopt;
    wait.recent = recent != 0;
    std::optional<std::string> what = next_field(rest);
    if (!what) return std::nullopt;
    wait.what = *std::move(what);
    answer.report.waits.push_back(std::move(wait));
  }
  return answer;
}

// Appends a field, truncated at its first zero byte and at `most` bytes.
void add_field(std::string& text, std::string_view field, std::size_t most = kMaxTextBytes) {
  field = field.substr(0, most);
  text.append(field.substr(0, field.find('\0'))).push_back('\0');
}

}  // namespace

std::string stop_message(const Error& error) {
  std::string text(1, kStop);
  add_field(text, error.kind());
  add_field(text, std::to_string(static_cast<int>(error.blame())));
  add_field(text, error.rank() ? std::to_string(*error.rank()) : "");
  add_field(text, error.operation());
  add_field(text, error.hint());
  add_field(text, error.step() ? std::to_string(*error.step()) : "");
  return text.append(error.message(), 0, kMaxTextBytes);
}

std::string question_message(const Question& question) {
  return fmt::format("{}{}{}{}{}{}{}", kQuestion, question.group, '\0', question.sequence, '\0', question.old_ms, '\0');
}

std::string answer_message(const Answer& answer) {
  std::string text(1, kAnswer);
  add_field(text, std::to_string(answer.question.group));
  add_field(text, std::to_string(answer.question.sequence));
  add_field(text, std::to_string(answer.question.old_ms));
  add_field(text, answer.report.issued ? "1" : "0");
  add_field(text, answer.report.busy, kMaxWhatBytes);
  for (const Wait& wait : answer.report.waits) {
    add_field(text, std::to_string(wait.peer));
    add_field(text, std::to_string(wait.group));
    add_field(text, std::to_string(wait.sequence));
    add_field(text, wait.recent ? "1" : "0");
    add_field(text, wait.what, kMaxWhatBytes);
  }
  return text;
}

std::string value_message(const std::string& key, const std::string& value) {
  return fmt::format("{}{}{}{}", kValue, key, '\0', value);
}

std::optional<ControlMessage> parse_control(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const char letter = text[0];
  text.remove_prefix(1);
  if (letter == kStop) {
    if (std::optional<Error> error = parse_stop(text)) return *std::move(error);
  } else if (letter == kValue) {
    if (std::optional<std::string> key = next_field(text)) {
      return PublishedValue{*std::move(key), std::string(text)};
    }
  } else if (letter == kQuestion) {
    if (const std::optional<Question> question = parse_question(text); question && text.empty()) return *question;
  } else if (letter == kAnswer) {
    if (std::optional<Answer> answer = parse_answer(text)) return *std::move(answer);
  }
  return std::nullopt;
}

}  // namespace ms::comm
