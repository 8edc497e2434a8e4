// The command images of ms-data.
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/print.h"
#include "base/text.h"
#include "data/commands.h"
#include "data/image_file.h"

namespace ms::data {
namespace {

int run_images(const Args& args) {
  const TokenFile file(args.get("PREFIX"));
  const std::optional<Note> note = read_note(file.prefix());
  const std::optional<ImageFile> images = open_images(file, note, note ? note->patch : 0);
  if (!images) {
    throw user_error("data.image", fmt::format("{} has no images", file.prefix()),
                     "ms-data encode --image-size encodes images with text");
  }
  std::pair<std::int64_t, std::int64_t> wanted{0, images->size()};
  if (args.has("document"))
    wanted = images->within(file.document(args.get_int("document", 0, file.num_documents() - 1)));
  if (args.has("output")) {
    for (std::int64_t i = wanted.first; i < wanted.second; ++i)
      write_file_atomic(fmt::format("{}/{}.png", args.get("output"), i), image::encode_png(images->image(i)));
    return 0;
  }
  TextTable table(columns("image>|document>|token>|width>|height>|bytes>"));
  for (std::int64_t i = wanted.first; i < wanted.second; ++i) {
    const ImageEntry& image = (*images)[i];
    std::vector<std::string> row;
    for (const std::int64_t number : {i, file.document_of(image.token), image.token, image.cols * images->patch(),
                                      image.rows * images->patch(), std::int64_t{image.size_bytes}})
      row.push_back(std::to_string(number));
    table.row(row);
  }
  print_out("{}", table.str());
  return 0;
}

}  // namespace

Command images_command() {
  return {.name = "images",
          .summary = "list the images of a token file, or write them as PNG",
          .positionals = {{"PREFIX", "The path of a token file without .bin and .idx."}},
          .options = {{"document", "N", "Only those of this document, counted from 0."},
                      {.name = "output",
                       .value = "DIR",
                       .doc = "Write each to NUMBER.png in this directory, which exists, as the model sees it: in the "
                              "size that is listed.",
                       .letter = 'o'}},
          .run = run_images};
}

}  // namespace ms::data
