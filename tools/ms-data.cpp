// ms-data: text to token files, and what a token file holds. Users run it before a job; ms-train reads what it writes.
#include "data/commands.h"
#include "train/commands/commands.h"

int main(int argc, char** argv) {
  using namespace ms;  // NOLINT: a main
  const Tool tool{
      .name = "ms-data",
      .summary = "encode text to token files, and inspect them",
      .commands = {data::encode_command(), data::info_command(), data::show_command(), data::decode_command(),
                   data::images_command(), data::verify_command(), data::merge_command(), data::pack_command(),
                   data::train_tokenizer_command(), train::sample_command(), data::serve_command()},
      .description =
          "A token file is a pair of files, PREFIX.bin and PREFIX.idx, in Megatron-LM's format. One with a loss mask "
          "has version 2 in PREFIX.idx, which readers that know no masks refuse. PREFIX.meta.json beside them names "
          "the tokenizer. [data] in ms.toml(5) lists the prefixes that ms-train reads. Wherever a token file is read, "
          "PREFIX may be s3://BUCKET/KEY; see OBJECT STORES.",
      .examples = {{"ms-data encode --split-on % --output fortunes /usr/share/games/fortunes/computers",
                    "Encode every fortune as a document:"},
                   {"ms-data encode --tokenizer tokenizer.json --field text -o corpus shard-*.jsonl.zst",
                    "Encode JSON Lines with a Hugging Face tokenizer; repeat the command to resume after a kill:"},
                   {"ms-data encode --tokenizer tokenizer.json --chat-template qwen2.5 -o chats chats.jsonl",
                    "Encode conversations for fine-tuning:"},
                   {"ms-data encode --image-size 224 -o pictures pictures.jsonl", "Encode images with captions:"},
                   {"ms-data show fortunes --document 3", "Print one of the fortunes:"},
                   {"ms-data sample run.toml --step 100 --rank 0", "Show the samples of rank 0 in step 100:"}},
      .see_also = {"ms-train(1)", "ms.toml(5)"},
      .sections = {
          {"CONVERSATIONS",
           {{"Fine-tuning",
             "An imported model learns from conversations in JSON Lines, each line as\n\n"
             "    "
             "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Yo\"}]}\n\n"
             "in four commands:\n\n"
             "    ms-ckpt import --format hf --output imported MODEL\n"
             "    ms-data encode --tokenizer MODEL/tokenizer.json --chat-template auto \\\n"
             "        -o chats chats.jsonl\n"
             "    ms-data pack --seq 4096 --too-long truncate -o packed chats\n"
             "    ms-train run tune.toml\n\n"
             "In tune.toml, checkpoint.load is imported, data.train is [\"packed\"], data.reset_attention is true, and "
             "model.seq is 4096. ms-data sample tune.toml --step 1 shows what the loss counts."},
            {"Rendered as",
             "transformers' apply_chat_template renders them, without add_generation_prompt: default system prompts, "
             "white space and special tokens are the template's. A text has one token that begins it, even if the "
             "tokenizer adds one, too. Text such as <|im_end|> inside a message becomes the control token, as in "
             "transformers. ms-data encode counts such conversations and names the first: remove them from data that "
             "you do not trust. mistral-common encodes each content apart, and its first tokens can differ from "
             "these."},
            {"Lists of texts",
             "A content may be a list of parts of type text, as OpenAI's. Their texts are joined, as the templates of "
             "a family do that render such lists; Gemma's removes white space around each."},
            {"Dates",
             "llama3.1 renders the date 26 Jul 2024, so that a token file does not depend on the day: Llama 3.2's "
             "template takes that date where it has no clock. mistral-v7-tekken needs a system message, as its default "
             "one names the day. mistral-v3-tekken has none, as that template drops it where an answer follows."},
            {"Targets",
             "The contents of the assistant's messages without a weight of 0, and the token that ends each of them. "
             "What stands around them, "
             "such as the newline behind <|im_end|>, is ignored. The loss of a step is the mean over its targets, in "
             "every "
             "layout; metrics.jsonl has their number as targets."},
            {"Refused",
             "Messages of tools, calls of tools, reasoning, images, audio and other parts that are not text, roles "
             "that the template does not render, two system prompts, and conversations without a target. The error "
             "names the line; --skip-bad-lines skips and counts them."}}},
          {"IMAGES",
           {{"Lines",
             "Objects in JSON Lines with images and a text, in which each <image> is the place of one:\n\n"
             "    {\"image\":\"cats/1.jpg\",\"text\":\"A cat sleeps.\"}\n"
             "    {\"image\":[\"a.png\",\"b.png\"],\"text\":\"From <image> to <image>.\"}\n"
             "    {\"text\":\"Text alone.\"}\n\n"
             "A model learns from them in three commands:\n\n"
             "    ms-data encode --image-size 224 --patch-size 16 -o pictures pictures.jsonl\n"
             "    ms-data pack --seq 1024 -o packed pictures\n"
             "    ms-train run model.toml\n\n"
             "In model.toml, model.patch_size is 16, and model.vocab and the rest are as ms-data encode prints. Text "
             "without images may be another entry of data.train."},
            {"Pixels",
             "Images become RGB as in Pillow's convert(\"RGB\"): alpha is dropped, and EXIF orientation and colour "
             "profiles are not applied. One whose longer side has more than --image-size pixels shrinks to that. Both "
             "sides become whole patches, by bicubic interpolation (a = -0.5) as in Pillow 13's Image.BICUBIC. A "
             "colour c is (c - 128) / 128 to the model. The same files give the same numbers in every layout."},
            {"Tokens",
             "One for each patch, row after row, and one behind each row. They are the last two ids of the "
             "vocabulary, and the loss ignores them. A document without text is left out."},
            {"Loading",
             "PREFIX.images has the images as they were given. The loader of a node decodes those of a sample when it "
             "reads the sample. An image that is damaged then ends the run; ms-data verify decodes all."},
            {"Refused",
             "An image that is missing, cut, damaged, CMYK, of another format than JPEG and PNG, of more than 64 MiB "
             "or 67,108,864 pixels, and wrong base64. The error names the line; --skip-bad-lines skips and counts "
             "them. Images in object stores, in ms_loader and in ms-ckpt export."}}},
          {"OBJECT STORES",
           {{"s3://BUCKET/KEY",
             "Reads KEY.bin, KEY.idx and KEY.meta.json from a store with S3's API, for example with data.train = "
             "[\"s3://corpora/web\"]. ms-data encode does not write there: copy its files with your store's own tool. "
             "An object that is replaced while a run reads it ends the run. Requires libcurl 7.86 or later."},
            {"MS_DATA_CACHE",
             "The directory of the node's cache: PREFIX.idx whole, and of PREFIX.bin blocks of 256 KiB as they are "
             "read. "
             "Use a local disk with space for what a node reads, at most the size of the token files. A restarted run "
             "reads what it finds there, if its checksum is right. Nothing is removed. Default: "
             "$TMPDIR/ms-data-cache-UID, or /tmp."},
            {"AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL",
             "The URL of the store, for MinIO, Ceph and others. Default: AWS, in the region."},
            {"AWS_REGION, AWS_DEFAULT_REGION", "The region of the bucket. Default: us-east-1."},
            {"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN",
             "The credentials. Default: the profile AWS_PROFILE, or default, in AWS_SHARED_CREDENTIALS_FILE, or "
             "~/.aws/credentials. Without any, requests are not signed, as for public buckets. Credentials of an "
             "instance's role are not read."},
            {"AWS_CA_BUNDLE, https_proxy, no_proxy", "As for other programs that use libcurl."}}},
          {"TOKENIZERS",
           {{"Read",
             "A tokenizer.json of Hugging Face. Ids are those of tokenizers. Each part may be:\n\n"
             "    part            kinds\n"
             "    model           BPE: byte level, byte_fallback, unk_token, fuse_unk, ignore_merges\n"
             "                    Unigram: unk_id, byte_fallback; WordPiece\n"
             "    normalizer      BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Precompiled,\n"
             "                    Prepend, Replace (String, Regex), Strip, StripAccents\n"
             "    pre-tokenizer   BertPreTokenizer, ByteLevel (BPE only), Digits, Metaspace,\n"
             "                    Punctuation, Split (String, Regex; each behavior; invert),\n"
             "                    Whitespace, WhitespaceSplit\n"
             "    post-processor  BertProcessing, ByteLevel, RobertaProcessing,\n"
             "                    TemplateProcessing\n"
             "    decoder         ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip,\n"
             "                    WordPiece\n"
             "    added tokens    single_word, lstrip, rstrip, normalized, special"},
            {"Families",
             "GPT-2, GPT-NeoX, Llama 1 to 3, TinyLlama, Mistral 7B, Mixtral, Qwen, Gemma as BPE. T5, XLM-R, mBART, "
             "CamemBERT, Pegasus, ALBERT, XLNet as Unigram. BERT, DistilBERT, ELECTRA, MPNet as WordPiece."},
            {"Ignored", "Saved truncation and padding: documents are neither cut nor padded. A dropout of 0."},
            {"Refused",
             "WordLevel, a file without a decoder, and all other kinds. The message names the part. "
             "Encode with the library that made the tokenizer, as Megatron's .bin and .idx, which ms-train reads."},
            {"Special tokens",
             "A template's tokens stand around each document; --no-template leaves them out. The token of --eod ends "
             "each document in any case, once. ms-data info prints both as document_begin and document_end. "
             "ms-train generate begins the prompt with those of the template."}}}}};
  return run_tool(tool, argc, argv);
}
