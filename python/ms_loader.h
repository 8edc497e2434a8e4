/* The C interface of a node's batches: what `ms-data serve` reads, another process of the node sees without a copy. One
 * thread at a time uses a reader. Functions that can fail write a text of at most MS_LOADER_TEXT bytes to `error`. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MS_LOADER_TEXT = 1024, MS_LOADER_CHAIN = 17 };

/* The sizes that ms-data serve was started with. */
typedef struct {
  int readers; /* processes of the node that read, each every batch */
  int parts;   /* dp ranks of the node */
  int64_t rows, seq;
  int has_starts;
} ms_loader_shape;

typedef struct {
  /* Rows of seq + 1 tokens: the inputs, and one token later their targets. A token that the loss ignores as a target is
   * the complement of its id, ~id, which is negative; only files with a loss mask have such. */
  const int32_t* tokens;
  const int32_t* starts; /* rows of seq: where in the row the document of each input begins; NULL without starts */
  int64_t rows;
  int64_t num_targets; /* of all dp ranks in this step, which the loss does not ignore */
  uint64_t digest;     /* of all samples of the step, for ms_loader_extend_chain() */
} ms_loader_batch;

typedef struct ms_loader_reader ms_loader_reader;

/* Opens the batches at the address that ms-data serve printed. `reader` is below shape->readers, and no other process
 * has it; `part` is below shape->parts. Returns NULL on an error. */
ms_loader_reader* ms_loader_open(const char* address, const ms_loader_shape* shape, int reader, int part, char* error);

/* Waits for the batch of `step`, the one after that of the call before, and releases the one before. Returns 1: `batch`
 * is valid until the next call; 0: it is not read after `patience_s`; -1: an error, as where ms-data serve has ended.
 */
int ms_loader_next_batch(ms_loader_reader* reader, int64_t step, double patience_s, ms_loader_batch* batch,
                         char* error);

void ms_loader_close(ms_loader_reader* reader);

/* Extends the chain of a run by a step: 16 hexadecimal digits and a NUL, of which "0000000000000000" is the first. */
void ms_loader_extend_chain(char chain[MS_LOADER_CHAIN], uint64_t digest);

#ifdef __cplusplus
}
#endif
