#include "data/image_encoder.h"

#include <utility>

#include "base/base64.h"
#include "base/error.h"
#include "base/escape.h"
#include "base/json.h"
#include "base/user_path.h"
#include "data/image_file.h"
#include "data/target_mask.h"

namespace ms::data {
namespace {

// Base64 of JPEG and of PNG begins so, and a path hardly does.
constexpr std::string_view kBase64Begins[] = {"/9j/", "iVBORw0KGgo"};
constexpr std::size_t kShownBytes = 100;

// The images that a line names. Its JSON is sound, as JsonLine has read it.
std::optional<JsonLineProblem> images_of(std::string_view line, const std::string& field,
                                         std::vector<std::string>& images) {
  const Json json = Json::parse(line);
  const Json* const value = json.find(field);
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->is_string()) {
    images.push_back(value->text());
    return std::nullopt;
  }
  const JsonLineProblem problem{fmt::format("the field '{}' is neither a string nor an array of strings", field)};
  if (!value->is_array()) return problem;
  for (const Json& one : *value) {
    if (!one.is_string()) return problem;
    images.push_back(one.text());
  }
  return std::nullopt;
}

// The base64 of a data URL, or of a text that begins as an image's; empty: it is a path.
std::string_view base64_in(std::string_view text) {
  if (text.starts_with("data:")) {
    const std::size_t comma = text.find(";base64,");
    return comma == std::string_view::npos ? "" : text.substr(comma + std::string_view(";base64,").size());
  }
  for (const std::string_view begin : kBase64Begins) {
    if (text.starts_with(begin)) return text;
  }
  return "";
}

}  // namespace

ImageEncoder::ImageEncoder(ImageOptions options, const Tokenizer& tokenizer)
    : options_(std::move(options)), tokenizer_(tokenizer) {
  image::require_decoders();
}

std::optional<JsonLineProblem> ImageEncoder::read_image(const std::string& text, BatchImage& image) const {
  std::string name = "an image in base64";
  if (const std::string_view base64 = base64_in(text); !base64.empty()) {
    std::optional<std::string> bytes = from_base64(base64);
    if (!bytes) return JsonLineProblem{name + " has characters that are not base64, or was cut"};
    image.bytes = *std::move(bytes);
  } else {
    const bool is_relative = !options_.directory.empty() && !text.starts_with('/');
    const std::string path = is_relative ? options_.directory + '/' + text : text;
    name = safe_line(path.substr(0, kShownBytes));
    try {
      image.bytes = read_user_file(path, static_cast<std::size_t>(kMaxImageBytes));
    } catch (const Error& error) {  // an outcome of the line, which may be skipped
      if (error.blame() != Blame::user) throw;
      return JsonLineProblem{error.message()};
    }
  }
  if (std::ssize(image.bytes) > kMaxImageBytes)
    return JsonLineProblem{fmt::format("{} has more than {} bytes", name, kMaxImageBytes)};
  image::Image pixels;
  if (const auto problem = image::decode(image.bytes, pixels)) return JsonLineProblem{name + ": " + *problem};
  image.grid = image::grid_of(pixels.width, pixels.height, options_.patch, options_.longest);
  return std::nullopt;
}

void ImageEncoder::append_image(BatchImage image, TextBatch& batch) const {
  const auto patch = static_cast<std::int32_t>(tokenizer_.vocab_size());
  image.token = batch.tokens.size();
  for (std::int64_t row = 0; row < image.grid.rows; ++row) {
    batch.tokens.insert(batch.tokens.end(), static_cast<std::size_t>(image.grid.cols), ignored_target(patch));
    batch.tokens.push_back(ignored_target(patch + 1));
  }
  batch.images.push_back(std::move(image));
}

std::optional<JsonLineProblem> ImageEncoder::encode(std::string_view line, std::string_view text, TextBatch& batch,
                                                    TextItem& item) const {
  std::vector<std::string> names;
  if (auto problem = images_of(line, options_.field, names)) return problem;
  std::vector<std::string_view> pieces;  // of text; an image follows each but the last
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(kPlace, begin)) != std::string_view::npos; begin = at + kPlace.size())
    pieces.push_back(text.substr(begin, at - begin));
  if (pieces.empty()) pieces.resize(names.size());
  if (pieces.size() != names.size()) {
    return JsonLineProblem{fmt::format("the text has {} {} times, and the field '{}' has {} images", kPlace,
                                       pieces.size(), options_.field, names.size())};
  }
  pieces.push_back(text.substr(begin));
  std::vector<BatchImage> images(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (auto problem = read_image(names[i], images[i])) return problem;
  }
  item.end = text.size() - kPlace.size() * (begin == 0 ? 0 : names.size());
  if (item.end == 0) return std::nullopt;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].empty() && !tokenizer_.encode(pieces[i], batch.tokens)) item.is_utf8 = false;
    if (i < images.size()) append_image(std::move(images[i]), batch);
  }
  return std::nullopt;
}

}  // namespace ms::data
