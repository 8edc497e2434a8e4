#include "data/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace ms::data {
namespace {

constexpr std::string_view kLists[] = {"messages", "conversations"};
struct MessageForm {
  std::string_view role, content;
};
constexpr MessageForm kForms[] = {{"role", "content"}, {"from", "value"}};

struct RoleName {
  std::string_view name;
  ChatRole role;
};
constexpr RoleName kRoles[] = {{"system", ChatRole::system}, {"user", ChatRole::user},
                               {"human", ChatRole::user},    {"assistant", ChatRole::assistant},
                               {"gpt", ChatRole::assistant}, {"chatgpt", ChatRole::assistant}};

// Members that change what a template renders, and that no template of the table renders here.
constexpr std::string_view kOtherOfChat[] = {"tools", "functions", "system_prompt"};
constexpr std::string_view kOtherOfMessage[] = {"tool_calls", "function_call", "reasoning_content", "reasoning",
                                                "thinking"};

constexpr std::string_view kHint =
    "one conversation stands on each line; correct it, or skip such conversations with --skip-bad-lines";

JsonLineProblem problem_of(std::string what) { return {std::move(what), std::string(kHint)}; }

std::optional<std::string_view> filled_member(const Json& object, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const Json* value = object.find(name);
    if (value != nullptr && !value->empty() && !(value->is_string() && value->text().empty())) return name;
  }
  return std::nullopt;
}

std::string not_rendered(std::string_view key) { return fmt::format("has '{}', which is not rendered", key); }

// OpenAI's `weight` of an answer: 0 or 1; absent: 1.
std::optional<bool> target_of(const Json& message) {
  const Json* weight = message.find("weight");
  if (weight == nullptr || weight->is_null() || *weight == Json(1)) return true;
  if (*weight == Json(0)) return false;
  return std::nullopt;
}

// Joins the texts of a list of parts. Returns what is wrong.
std::optional<std::string> join_parts(const Json& parts, ChatMessage& message) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Json *type = parts.at(i).find("type"), *text = parts.at(i).find("text");
    if (type == nullptr || !type->is_string()) return fmt::format("has no text 'type' in part {}", i + 1);
    if (type->text() != "text") return fmt::format("has a part of type '{}', and only text is rendered", type->text());
    if (text == nullptr || !text->is_string()) return fmt::format("has no text 'text' in part {}", i + 1);
    if (i > 0) message.seams.push_back(message.content.size());
    message.content += text->text();
  }
  return std::nullopt;
}

std::optional<std::string> add_message(const Json& message, std::vector<ChatMessage>& messages) {
  const bool is_other = message.contains(kForms[1].role) && !message.contains(kForms[0].role);
  const MessageForm& form = kForms[is_other ? 1 : 0];
  const Json* role = message.find(form.role);
  if (role == nullptr || !role->is_string()) return fmt::format("has no text '{}'", form.role);
  const auto* const known = std::ranges::find(kRoles, role->text(), &RoleName::name);
  if (known == std::end(kRoles)) {
    return fmt::format("has the role '{}', expected system, user, human, assistant, gpt or chatgpt", role->text());
  }
  if (const auto other = filled_member(message, kOtherOfMessage)) return not_rendered(*other);
  const Json* content = message.find(form.content);
  if (content == nullptr || !(content->is_string() || content->is_array())) {
    return fmt::format("has no text '{}'", form.content);
  }
  const std::optional<bool> is_target = target_of(message);
  if (!is_target) return "has a 'weight' other than 0 and 1";
  ChatMessage& added = messages.emplace_back(ChatMessage{known->role, {}, *is_target});
  if (content->is_array()) return join_parts(*content, added);
  added.content = content->text();
  return std::nullopt;
}

}  // namespace

std::string_view to_string(ChatRole role) { return std::ranges::find(kRoles, role, &RoleName::role)->name; }

std::optional<JsonLineProblem> read_chat(std::string_view line, std::vector<ChatMessage>& messages) {
  messages.clear();
  std::string problem;
  const std::optional<Json> chat = Json::try_parse(line, {}, &problem);
  if (!chat) return problem_of(problem);
  const auto* const name = std::ranges::find_if(kLists, [&](std::string_view one) { return chat->contains(one); });
  if (name == std::end(kLists)) return problem_of("it has neither 'messages' nor 'conversations'");
  const Json& list = chat->at(*name);
  if (!list.is_array() || list.empty()) return problem_of(fmt::format("'{}' is not a list with messages", *name));
  if (const auto other = filled_member(*chat, kOtherOfChat)) return problem_of("it " + not_rendered(*other));
  if (const Json* system = chat->find("system"); system != nullptr && !system->is_null()) {
    if (!system->is_string()) return problem_of("its 'system' is not a text");
    if (!system->text().empty()) messages.push_back({ChatRole::system, system->text()});
  }
  const bool has_prompt = !messages.empty();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (const auto wrong = add_message(list.at(i), messages))
      return problem_of(fmt::format("message {} {}", i + 1, *wrong));
  }
  if (has_prompt && messages[1].role == ChatRole::system) return problem_of("it has two system prompts");
  const auto is_target = [](const ChatMessage& one) { return one.role == ChatRole::assistant && one.is_target; };
  if (std::ranges::none_of(messages, is_target)) return problem_of("no message of the assistant is a target");
  return std::nullopt;
}

}  // namespace ms::data
