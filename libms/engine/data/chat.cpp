#include "data/chat.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace ms::data {
namespace {

struct ChatForm {
  std::string_view list, role, content;
};
constexpr ChatForm kForms[] = {{"messages", "role", "content"}, {"conversations", "from", "value"}};

struct RoleName {
  std::string_view name;
  ChatRole role;
};
constexpr RoleName kRoles[] = {{"system", ChatRole::system},
                               {"user", ChatRole::user},
                               {"human", ChatRole::user},
                               {"assistant", ChatRole::assistant},
                               {"gpt", ChatRole::assistant}};

// Members that change what a template renders, and that no template of the table renders here.
constexpr std::string_view kToolsOfChat[] = {"tools", "functions"};
constexpr std::string_view kOtherContent[] = {"tool_calls", "function_call", "reasoning_content"};

constexpr std::string_view kHint = "remove such conversations, or skip them with --skip-bad-lines";

std::optional<std::string_view> filled_member(const Json& object, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const Json* value = object.find(name);
    if (value != nullptr && !value->empty() && !(value->is_string() && value->text().empty())) return name;
  }
  return std::nullopt;
}

std::optional<std::string> add_message(const Json& message, const ChatForm& form, std::vector<ChatMessage>& messages) {
  const Json* role = message.find(form.role);
  if (role == nullptr || !role->is_string()) return fmt::format("has no text '{}'", form.role);
  const auto* const known = std::ranges::find(kRoles, role->text(), &RoleName::name);
  if (known == std::end(kRoles)) {
    return fmt::format("has the role '{}', expected system, user, human, assistant or gpt", role->text());
  }
  if (const auto other = filled_member(message, kOtherContent)) {
    return fmt::format("has '{}', which chat templates are not rendered with here", *other);
  }
  const Json* content = message.find(form.content);
  if (content == nullptr || !content->is_string()) return fmt::format("has no text '{}'", form.content);
  messages.push_back({known->role, content->text()});
  return std::nullopt;
}

}  // namespace

std::string_view to_string(ChatRole role) { return std::ranges::find(kRoles, role, &RoleName::role)->name; }

std::optional<JsonLineProblem> read_chat(std::string_view line, std::vector<ChatMessage>& messages) {
  messages.clear();
  std::string problem;
  const std::optional<Json> chat = Json::try_parse(line, {}, &problem);
  if (!chat) return JsonLineProblem{problem};
  const auto* const form = std::ranges::find_if(kForms, [&](const ChatForm& one) { return chat->contains(one.list); });
  if (form == std::end(kForms)) return JsonLineProblem{"it has neither 'messages' nor 'conversations'"};
  const Json& list = chat->at(form->list);
  if (!list.is_array() || list.empty())
    return JsonLineProblem{fmt::format("'{}' is not a list of messages", form->list)};
  if (const auto tools = filled_member(*chat, kToolsOfChat)) {
    return JsonLineProblem{fmt::format("it has '{}', which chat templates are not rendered with here", *tools),
                           std::string(kHint)};
  }
  if (const Json* system = chat->find("system"); system != nullptr && system->is_string() && !system->text().empty())
    messages.push_back({ChatRole::system, system->text()});
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (const auto wrong = add_message(list.at(i), *form, messages))
      return JsonLineProblem{fmt::format("message {} {}", i + 1, *wrong), std::string(kHint)};
  }
  if (std::ranges::find(messages, ChatRole::assistant, &ChatMessage::role) == messages.end())
    return JsonLineProblem{"no message is from the assistant", std::string(kHint)};
  return std::nullopt;
}

}  // namespace ms::data
