// The code of the filter's range as it was last translated, to notice changes.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct block;

extern atomic_uint_fast64_t code_epoch;  // odd while a change is being recorded
void code_init(void);
void code_seen(uint64_t address, const uint8_t *bytes, uint32_t size);
bool code_is_as_last_seen(const struct block *b);
