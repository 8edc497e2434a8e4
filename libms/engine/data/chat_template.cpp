#include "data/chat_template.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/user_path.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

using System = ChatTemplate::System;
using Trim = ChatTemplate::Trim;

constexpr ChatTemplate::Turn kImSystem{"<|im_start|>system\n", "<|im_end|>\n"};
constexpr ChatTemplate::Turn kImUser{"<|im_start|>user\n", "<|im_end|>\n"};
constexpr ChatTemplate::Turn kImAssistant{"<|im_start|>assistant\n", "<|im_end|>\n"};
constexpr ChatTemplate::Turn kGemmaUser{"<start_of_turn>user\n", "<end_of_turn>\n"};
constexpr ChatTemplate::Turn kGemmaModel{"<start_of_turn>model\n", "<end_of_turn>\n"};
constexpr ChatTemplate::Turn kPhiSystem{"<|system|>\n", "<|end|>\n"};
constexpr ChatTemplate::Turn kPhiUser{"<|user|>\n", "<|end|>\n"};
constexpr ChatTemplate::Turn kPhiAssistant{"<|assistant|>\n", "<|end|>\n"};

// Families that differ from another one in a detail begin as its copy.
std::vector<ChatTemplate> mistral_templates() {
  const ChatTemplate mistral{.name = "mistral",
                             .models = "Mixtral 8x7B Instruct, and Mistral 7B Instruct v0.2 as first published",
                             .begin = "<s>",
                             .user = {"[INST] ", " [/INST]"},
                             .assistant = {"", "</s>"},
                             .end_of_turn = "</s>",
                             .special = {"<s>", "</s>"},
                             .system_rule = System::refused,
                             .alternates = true,
                             .texts = {0x3b7f4d503b069b01}};
  ChatTemplate mistral_v0_1 = mistral;
  mistral_v0_1.name = "mistral-v0.1", mistral_v0_1.models = "Mistral 7B Instruct v0.1";
  mistral_v0_1.assistant.after = "</s> ";
  mistral_v0_1.texts = {0x4814b86dcce0320f};
  // It renders a system message only if the conversation ends with the user.
  ChatTemplate mistral_v3 = mistral;
  mistral_v3.name = "mistral-v3-tekken", mistral_v3.models = "Mistral Nemo Instruct 2407";
  mistral_v3.user = {"[INST]", "[/INST]"};
  mistral_v3.special = {"<s>", "[INST]", "[/INST]", "</s>"};
  mistral_v3.texts = {0x57964a9b6c80d12a, 0xea6074b922d3f96d};
  ChatTemplate mistral_v7 = mistral_v3;
  mistral_v7.name = "mistral-v7", mistral_v7.models = "Mistral Large Instruct 2411";
  mistral_v7.system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"}, mistral_v7.user = {"[INST] ", "[/INST]"};
  mistral_v7.answer_lead = " ";
  mistral_v7.special = {"<s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]", "</s>"};
  mistral_v7.system_rule = System::message, mistral_v7.alternates = false;
  mistral_v7.texts = {0x91059af6d2235a9c};
  ChatTemplate mistral_v7_tekken = mistral_v7;
  mistral_v7_tekken.name = "mistral-v7-tekken";
  mistral_v7_tekken.models = "Mistral Small 24B Instruct 2501, with a system message";
  mistral_v7_tekken.system = {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}, mistral_v7_tekken.user = {"[INST]", "[/INST]"};
  mistral_v7_tekken.answer_lead = "";
  mistral_v7_tekken.system_rule = System::first;
  mistral_v7_tekken.texts = {0x722a9fa34733e05c};
  return {mistral, mistral_v0_1, mistral_v3, mistral_v7, mistral_v7_tekken};
}

std::vector<ChatTemplate> make_templates() {
  const ChatTemplate chatml{.name = "chatml",
                            .models = "ChatML without a default system prompt; Qwen3 2507 Instruct",
                            .system = kImSystem,
                            .user = kImUser,
                            .assistant = kImAssistant,
                            .end_of_turn = "<|im_end|>",
                            .special = {"<|im_start|>", "<|im_end|>"},
                            .texts = {0x3f951c547f06568f, 0x438e1930d4ab6761}};
  ChatTemplate qwen2_5 = chatml;
  qwen2_5.name = "qwen2.5", qwen2_5.models = "Qwen2.5 Instruct";
  qwen2_5.default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
  qwen2_5.texts = {0x14f39dfcc63bcdcb};
  ChatTemplate qwen3 = chatml;
  qwen3.name = "qwen3", qwen3.models = "Qwen3, without reasoning";
  qwen3.no_reasoning = "<think>\n\n</think>\n\n";
  qwen3.texts = {0xa2f2632e64077a8e};
  const ChatTemplate llama3{.name = "llama3",
                            .models = "Llama 3 Instruct",
                            .begin = "<|begin_of_text|>",
                            .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
                            .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
                            .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
                            .end_of_turn = "<|eot_id|>",
                            .special = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
                            .trim = Trim::contents,
                            .texts = {0xdcdc8f0c69cd885e}};
  ChatTemplate llama3_1 = llama3;
  llama3_1.name = "llama3.1", llama3_1.models = "Llama 3.1, 3.2 and 3.3 Instruct, of 26 Jul 2024";
  llama3_1.system_lead = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  llama3_1.texts = {0xc0e2a829a7f6e18a, 0xe980fb39e0834855};  // that of 3.2 takes the day's date if it has a clock
  const ChatTemplate gemma{.name = "gemma",
                           .models = "Gemma and Gemma 2",
                           .begin = "<bos>",
                           .user = kGemmaUser,
                           .assistant = kGemmaModel,
                           .end_of_turn = "<end_of_turn>",
                           .special = {"<bos>", "<start_of_turn>", "<end_of_turn>"},
                           .system_rule = System::refused,
                           .trim = Trim::texts,
                           .alternates = true,
                           .texts = {0xedb6b8105d3879b4}};
  ChatTemplate gemma3 = gemma;
  gemma3.name = "gemma3", gemma3.models = "Gemma 3, text";
  gemma3.system_rule = System::in_user;
  gemma3.texts = {0xdaa268fb12f5cd53};
  const ChatTemplate phi3{.name = "phi3",
                          .models = "Phi-3 mini and medium",
                          .end = "<|endoftext|>",
                          .system = kPhiSystem,
                          .user = kPhiUser,
                          .assistant = kPhiAssistant,
                          .end_of_turn = "<|end|>",
                          .special = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"},
                          .texts = {0x8e4616bc17c3e31d}};
  ChatTemplate phi3_5 = phi3;
  phi3_5.name = "phi3.5", phi3_5.models = "Phi-3.5 mini";
  phi3_5.skips_empty_system = true;
  phi3_5.texts = {0x36a72d821e8ac96f};
  std::vector<ChatTemplate> templates{chatml, qwen2_5, qwen3, llama3, llama3_1, gemma, gemma3, phi3, phi3_5};
  std::ranges::move(mistral_templates(), std::back_inserter(templates));
  return templates;
}

std::string names() {
  std::string text;
  for (const ChatTemplate& one : chat_templates()) text += (text.empty() ? "" : ", ") + std::string(one.name);
  return text;
}

constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;

// The text of the template in tokenizer_config.json, which may have several by name.
std::optional<std::string> template_in(const std::string& config_path) {
  const std::optional<Json> config = Json::try_parse(read_user_file(config_path, kMaxConfigBytes));
  const Json* value = config ? config->find("chat_template") : nullptr;
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->text();
  if (!value->is_array()) return std::nullopt;
  for (const Json& one : *value) {
    const Json *name = one.find("name"), *text = one.find("template");
    if (name != nullptr && text != nullptr && *name == Json("default") && text->is_string()) return text->text();
  }
  return std::nullopt;
}

// White space as Python's str.strip() has it: Unicode's and four control characters.
bool is_stripped(char32_t c) { return is_white_space(c) || (c >= 0x1c && c <= 0x1f); }

std::string_view stripped(std::string_view text) {
  while (!text.empty()) {
    const CodePoint first = code_point_at(text, 0);
    if (!is_stripped(first.value)) break;
    text.remove_prefix(first.bytes);
  }
  while (!text.empty()) {
    const std::size_t last = previous_character(text, text.size());
    if (!is_stripped(code_point_at(text, last).value)) break;
    text = text.substr(0, last);
  }
  return text;
}

class Renderer {
 public:
  Renderer(const ChatTemplate& format, RenderedChat& chat) : format_(format), chat_(chat) {}

  void markup(std::string_view text) {
    for (const std::string_view token : format_.special) {
      for (std::size_t at = text.find(token); at != std::string_view::npos; at = text.find(token, at + token.size()))
        chat_.cuts.push_back(chat_.text.size() + at);
    }
    chat_.text += text;
  }
  void message(const ChatMessage& message, std::string_view first, bool is_last_answer) {
    const bool is_answer = message.role == ChatRole::assistant;
    const ChatTemplate::Turn& turn = is_answer                          ? format_.assistant
                                     : message.role == ChatRole::system ? format_.system
                                                                        : format_.user;
    std::string_view content = content_of(message);
    markup(turn.before);
    const std::size_t begin = chat_.text.size();
    chat_.text += first;
    if (is_answer) chat_.text += format_.answer_lead;
    if (is_last_answer && !format_.no_reasoning.empty()) {
      chat_.text += format_.no_reasoning;
      content.remove_prefix(std::min(content.find_first_not_of('\n'), content.size()));
    }
    chat_.text += content;
    if (is_answer && message.is_target)
      chat_.answers.push_back({begin, chat_.text.size() + format_.end_of_turn.size()});
    markup(turn.after);
  }

 private:
  std::string_view content_of(const ChatMessage& message) {
    if (format_.trim == Trim::nothing) return message.content;
    if (format_.trim == Trim::contents || message.seams.empty()) return stripped(message.content);
    joined_.clear();
    std::size_t begin = 0;
    for (std::size_t i = 0; i <= message.seams.size(); ++i) {
      const std::size_t end = i < message.seams.size() ? message.seams[i] : message.content.size();
      joined_ += stripped(std::string_view(message.content).substr(begin, end - begin));
      begin = end;
    }
    return joined_;
  }

  const ChatTemplate& format_;
  RenderedChat& chat_;
  std::string joined_;  // the content of a message whose texts are trimmed
};

// Returns what of the messages the template does not render.
std::optional<std::string> refusal(const ChatTemplate& format, std::span<const ChatMessage> messages) {
  if (format.system_rule == System::first && messages.front().role != ChatRole::system) {
    return fmt::format("the chat template {} needs a system message at the beginning, as its own has the day's date",
                       format.name);
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatRole role = messages[i].role;
    const std::string& content = messages[i].content;
    if (role == ChatRole::system && format.system_rule == System::refused)
      return fmt::format("the chat template {} has no system message", format.name);
    if (role == ChatRole::system && format.system_rule == System::in_user)
      return fmt::format("the chat template {} has a system message as the first one only", format.name);
    if (format.alternates && (role == ChatRole::user) != (i % 2 == 0)) {
      return fmt::format("the chat template {} lets user and assistant take turns, and {} follows {}", format.name,
                         to_string(role), i == 0 ? "nothing" : to_string(messages[i - 1].role));
    }
    const bool has_reasoning =
        content.find(role == ChatRole::assistant ? "</think>" : "<tool_response>") != std::string::npos;
    if (!format.no_reasoning.empty() && has_reasoning)
      return fmt::format("reasoning and tool responses are not rendered with the chat template {}", format.name);
  }
  return std::nullopt;
}

}  // namespace

std::span<const ChatTemplate> chat_templates() {
  static const std::vector<ChatTemplate> templates = make_templates();
  return templates;
}

const ChatTemplate& chat_template(std::string_view name) {
  const auto found = std::ranges::find(chat_templates(), name, &ChatTemplate::name);
  if (found != chat_templates().end()) return *found;
  throw user_error("data.template", fmt::format("there is no chat template '{}'", name), "known are: " + names());
}

const ChatTemplate& chat_template_beside(const std::string& tokenizer_json) {
  const std::filesystem::path directory = std::filesystem::path(tokenizer_json).parent_path();
  const std::string jinja = directory / "chat_template.jinja", config = directory / "tokenizer_config.json";
  const auto exists = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  std::optional<std::string> text;
  if (exists(jinja)) {
    text = read_user_file(jinja, kMaxConfigBytes);
  } else if (exists(config)) {
    text = template_in(config);
  }
  if (!text) {
    throw user_error(
        "data.template",
        fmt::format("no chat template can be read in chat_template.jinja or tokenizer_config.json beside {}",
                    tokenizer_json),
        "name one with --chat-template: " + names());
  }
  std::string_view trimmed = *text;
  if (trimmed.ends_with('\n')) trimmed.remove_suffix(1);  // which Jinja leaves out, too
  const std::uint64_t hash = xxh64(trimmed);
  for (const ChatTemplate& one : chat_templates()) {
    if (std::ranges::find(one.texts, hash) != one.texts.end()) return one;
  }
  throw user_error(
      "data.template",
      fmt::format("the chat template in {} is not one of those that ms-data renders", exists(jinja) ? jinja : config),
      "if one of them gives the same text, name it with --chat-template: " + names());
}

std::optional<JsonLineProblem> render(const ChatTemplate& format, std::span<const ChatMessage> messages,
                                      RenderedChat& chat) {
  chat.text.clear(), chat.cuts.clear(), chat.answers.clear();
  std::string first;  // before the content of the first message
  if (format.system_rule == System::in_user && messages.front().role == ChatRole::system) {
    if (!messages.front().seams.empty()) {
      return JsonLineProblem{
          fmt::format("the chat template {} renders the first text of a system message only", format.name)};
    }
    first = messages.front().content + "\n\n";
    messages = messages.subspan(1);
  }
  if (const auto why = refusal(format, messages)) return JsonLineProblem{*why};
  Renderer renderer(format, chat);
  renderer.markup(format.begin);
  if (messages.front().role == ChatRole::system) {
    first = format.system_lead;
  } else if (!format.default_system.empty() || !format.system_lead.empty()) {
    renderer.message({ChatRole::system, std::string(format.default_system)}, format.system_lead, false);
  }
  bool has_query = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (format.skips_empty_system && message.role == ChatRole::system && message.content.empty()) continue;
    // An answer to the last query: what follows the last message of the user, or nothing where there is none.
    const bool is_last_answer = i + 1 == messages.size() && message.role == ChatRole::assistant && has_query;
    renderer.message(message, i == 0 ? first : "", is_last_answer);
    has_query = has_query || message.role == ChatRole::user;
  }
  renderer.markup(format.end);
  std::ranges::sort(chat.cuts);
  return std::nullopt;
}

}  // namespace ms::data
