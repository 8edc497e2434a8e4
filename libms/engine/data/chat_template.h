// Chat templates: how the messages of a conversation become the text that a model was trained on. The table has common
// families; a tokenizer's own template is recognised by its text, as each renders differently in details.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat.h"

namespace ms::data {

struct ChatTemplate {
  enum class System : std::uint8_t {
    message,  // rendered like the others
    in_user,  // the first message is put before the user's
    first,    // the first message has to be one: the template's own depends on the date
    refused,
  };
  // White space that is removed.
  enum class Trim : std::uint8_t {
    nothing,
    contents,  // around each content
    texts,     // around each text of a content, if that is a list of parts
  };
  // The text around the content of a message.
  struct Turn {
    std::string_view before, after;
  };

  std::string_view name, models;
  std::string_view begin = {}, end = {};  // of the conversation
  Turn system = {}, user = {}, assistant = {};
  std::string_view end_of_turn;           // what `assistant.after` begins with, and the assistant has to generate
  std::vector<std::string_view> special;  // tokens of the above
  System system_rule = System::message;
  std::string_view default_system = {};  // where the first message is another one
  std::string_view system_lead = {};     // before the first system message, which stands even where there is none
  std::string_view answer_lead = {};     // before each answer, a part of what the assistant generates
  std::string_view no_reasoning = {};    // before the content of the last message, if it is an answer to the last query
  bool skips_empty_system = false;
  Trim trim = Trim::nothing;
  bool alternates = false;                // user and assistant take turns
  std::vector<std::uint64_t> texts = {};  // xxh64 of templates that render this, without the newline at their end
};

std::span<const ChatTemplate> chat_templates();
// Error("data.template", user) lists the names.
const ChatTemplate& chat_template(std::string_view name);
// Returns the template that chat_template.jinja or tokenizer_config.json beside a tokenizer.json has.
// Error("data.template", user): there is none, or it is not in the table.
const ChatTemplate& chat_template_beside(const std::string& tokenizer_json);

// A conversation as text, in pieces that begin with a special token.
struct RenderedChat {
  struct Span {
    std::size_t begin, end;  // bytes
  };
  std::string text;
  std::vector<std::size_t> cuts;  // where special tokens of the template begin
  std::vector<Span> answers;      // contents of the assistant with their end of turn
};
// nullopt: `chat` is what the template renders.
std::optional<JsonLineProblem> render(const ChatTemplate& format, std::span<const ChatMessage> messages,
                                      RenderedChat& chat);

}  // namespace ms::data
