#include "tracepp/read/json_objects.h"

#include "base/escape.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
std::uint64_t clean_text(std::span<char> text) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t bytes = utf8_bytes({text.data() + i, text.size() - i});
    if (bytes == 0) {
      text[i] = '?';
    } else if (byte < 0x20) {
      text[i] = ' ';  // between values newlines mean the same; within strings they may not stand
    }
    if (bytes == 0 || (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t')) ++count;
    i += std::max<std::size_t>(bytes, 1);
  }
  return count;
}

std::string unescaped(std::string_view token) {
  if (token.size() < 2 || token.front() != '"' || token.back() != '"') return std::string(token);
  const std::string_view inside = token.substr(1, token.size() - 2);
  if (inside.find('\\') == std::string_view::npos) return std::string(inside);
  simdjson::ondemand::parser parser;
  const simdjson::padded_string json(token);
  simdjson::ondemand::document document;
  std::string_view text;
  if (parser.iterate(json).get(document) || document.get_string().get(text)) return std::string(inside);
  return std::string(text);
}

}  // namespace ms::tracepp
