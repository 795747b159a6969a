// Asynchronous transfers: signals, faults, and returns from their handlers.
#pragma once

#include <stdbool.h>
#include <stdint.h>

void signals_outside(unsigned vcpu, void *block);
void signals_handler(unsigned vcpu, void *block);
void signals_restorer(unsigned vcpu, void *block);
void signals_action(uint64_t action);  // rt_sigaction's second argument
bool signals_is_handler(uint64_t address);
bool signals_is_restorer(uint64_t address);
