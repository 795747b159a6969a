// A thread that is in the VM or in native code has left behind where its Java frames begin: its JavaFrameAnchor (JDK:
// share/runtime/javaFrameAnchor.hpp, cpu/x86/javaFrameAnchor_x86.hpp). Where no sp is in it the thread runs Java code,
// and only it knows where it is. From the anchor on the frames are those that the VM itself walks
// (cpu/x86/frame_x86.{hpp,inline.hpp,cpp}, frame::sender):
//
//     interpreted       fp[-8] bcp, fp[-3] Method*, fp[-1] sender's sp before the callee's locals, fp[0] its fp, fp[1] pc
//     code blob         the sender's sp is as far above as the blob's frame size; pc and saved fp are right below it
//     call stub         fp[-6] JavaCallWrapper*, whose anchor has the Java frame below the VM's; no sp: there is none
//                       (share/runtime/javaCalls.hpp, stubGenerator_x86_64.cpp: generate_call_stub)
//
// Nothing stops the thread, so all may change under the walk. It is done twice, and the anchor is read before and
// after: what was the same each time is told. Everything is read by system calls that cannot fault, addresses only go
// up, and each pc must be one that has a frame; so nonsense ends the walk and does nothing worse.
//
// The walk ends without having reached the bottom where the frames of a continuation do (the rest of them is in the
// heap, and below is the carrier: share/runtime/continuationEntry.hpp), and at a deoptimised frame, whose pc was
// replaced (the handlers are in an nmethod's stub section). The deoptimisation blobs are there while frames are made
// anew.
#include "stackwalk.h"

#include <string.h>

#include "codecache.h"
#include "interpreter.h"
#include "ring.h"
#include "vmstructs.h"

enum { WORD = 8, PAGE = 4096, PAGES = 2, ANCHOR_WORDS = 3, MOST_BETWEEN = 1024 };

enum { IN_NATIVE = 4, BLOCKED = 10 };  // JavaThreadState (share/utilities/globalDefinitions.hpp)

enum {  // words from the frame pointer
    LINK = 0,
    RETURN = 1,
    SENDER_SP = -1,
    METHOD = -3,
    BCP = -8,
    CALL_WRAPPER = -6,
};

static struct {
    const uint64_t *call_stub_return;
    int64_t anchor, wrapper_anchor, sp, pc, fp;
    uint64_t to_state;  // from the anchor to JavaThread::_thread_state
    bool usable;
} at;

// Where a frame is: its pc, its sp as it was before a callee's arguments, and a frame pointer that only the frames of
// the interpreter and of the call stub have.
struct place {
    uint64_t pc, sp, fp;
};

static struct {
    uint64_t address;  // 0: none
    uint64_t words[PAGE / WORD];
} pages[PAGES];  // of the stack, as they were when the walk first came there

static bool in_anchor(int64_t offset) {
    return offset >= 0 && offset < ANCHOR_WORDS * WORD;
}

bool stackwalk_open(void) {
    at.call_stub_return = vm_static("StubRoutines", "_call_stub_return_address");
    at.anchor = vm_offset("JavaThread", "_anchor");
    at.wrapper_anchor = vm_offset("JavaCallWrapper", "_anchor");
    at.sp = vm_offset("JavaFrameAnchor", "_last_Java_sp");
    at.pc = vm_offset("JavaFrameAnchor", "_last_Java_pc");
    at.fp = vm_offset("JavaFrameAnchor", "_last_Java_fp");
    int64_t state = vm_offset("JavaThread", "_thread_state");
    at.to_state = (uint64_t)(state - at.anchor);
    at.usable = at.call_stub_return && state >= 0 && at.to_state <= MOST_BETWEEN - sizeof(int32_t) &&
                at.to_state >= sizeof(uint64_t[ANCHOR_WORDS]) && at.anchor >= 0 && at.wrapper_anchor >= 0 &&
                in_anchor(at.sp) && in_anchor(at.pc) && in_anchor(at.fp);
    return at.usable;
}

static bool stack_word(uint64_t address, uint64_t *value) {
    uint64_t page = address & ~(uint64_t)(PAGE - 1);
    unsigned i = page / PAGE % PAGES;
    if (address % WORD || !page) return false;
    if (pages[i].address != page) {
        pages[i].address = 0;
        if (!safe_read((const void *)page, pages[i].words, PAGE)) return false;
        pages[i].address = page;
    }
    *value = pages[i].words[address % PAGE / WORD];
    return true;
}

static bool from_fp(const struct place *place, int words, uint64_t *value) {
    return stack_word(place->fp + (uint64_t)(int64_t)(words * WORD), value);
}

static struct place placed(const uint64_t *anchor) {
    return (struct place){.pc = anchor[at.pc / WORD], .sp = anchor[at.sp / WORD], .fp = anchor[at.fp / WORD]};
}

static bool anchored(uint64_t anchor, struct place *place) {
    uint64_t words[ANCHOR_WORDS];
    for (int i = 0; i < ANCHOR_WORDS; i++)
        if (!stack_word(anchor + (uint64_t)(i * WORD), &words[i])) return false;
    *place = placed(words);
    return true;
}

// A call from where the VM knows its caller does not store the pc: it is the call's return address.
static bool find_pc(struct place *place) {
    return place->pc || stack_word(place->sp - WORD, &place->pc);
}

static bool interpreted(const struct place *place, struct walked_frame *frame, struct place *sender) {
    return place->fp >= place->sp && from_fp(place, METHOD, &frame->method) && from_fp(place, BCP, &frame->bcp) &&
           from_fp(place, SENDER_SP, &sender->sp) && from_fp(place, LINK, &sender->fp) &&
           from_fp(place, RETURN, &sender->pc);
}

static bool in_blob(const struct place *place, bool anchored, struct place *sender) {
    struct blob_frame frame;
    if (!codecache_frame(place->pc, &frame) || frame.deoptimised) return false;
    if (frame.kind == BLOB_DEOPTIMIZATION || frame.kind == BLOB_UNCOMMON_TRAP) return false;
    // Native code is called by a wrapper, which then is what an anchor leads to; the other native method with code of
    // its own is Continuation.enterSpecial, which calls Java.
    if (frame.kind == BLOB_NMETHOD && frame.native && !anchored) return false;
    sender->sp = place->sp + (uint64_t)frame.words * WORD;
    return stack_word(sender->sp - WORD, &sender->pc) && stack_word(sender->sp - 2 * WORD, &sender->fp);
}

static void walk(struct place place, struct walked *stack) {
    uint64_t low, high, wrapper;
    stack->count = 0;
    stack->whole = false;
    if (!interpreter_bounds(&low, &high) || !find_pc(&place)) return;
    for (bool head = true; stack->count < STACK_FRAMES;) {
        struct walked_frame frame = {.pc = place.pc};
        struct place sender;
        bool entry = place.pc == *at.call_stub_return;
        if (entry) {
            if (!from_fp(&place, CALL_WRAPPER, &wrapper)) return;
            if (!anchored(wrapper + (uint64_t)at.wrapper_anchor, &sender)) return;
        } else if (!(place.pc >= low && place.pc < high ? interpreted(&place, &frame, &sender)
                                                        : in_blob(&place, head, &sender))) {
            return;
        }
        stack->frames[stack->count++] = frame;
        stack->whole = entry && !sender.sp;
        if (sender.sp <= place.sp || (entry && !find_pc(&sender))) return;
        place = sender;
        head = entry;
    }
}

static void forget_pages(void) {
    for (int i = 0; i < PAGES; i++) pages[i].address = 0;
}

// Its anchor, and whether it may have frames without one.
static enum walk_result look(uint64_t java_thread, struct place *place) {
    uint8_t bytes[MOST_BETWEEN];
    uint64_t words[ANCHOR_WORDS];
    int32_t state;
    if (!safe_read((const void *)(java_thread + (uint64_t)at.anchor), bytes, at.to_state + sizeof state))
        return WALK_NO_FRAMES;
    memcpy(words, bytes, sizeof words);
    memcpy(&state, bytes + at.to_state, sizeof state);
    *place = placed(words);
    if (place->sp) return WALK_DONE;
    return state == IN_NATIVE || state == BLOCKED ? WALK_NO_FRAMES : WALK_LATER;
}

enum walk_result stackwalk(uint64_t java_thread, struct walked *stack) {
    static struct walked again;
    struct place place[2];
    if (!at.usable) return WALK_NO_FRAMES;
    stack->before = clock_tsc();
    enum walk_result found = look(java_thread, &place[0]);
    if (found != WALK_DONE) return found;
    forget_pages();
    walk(place[0], stack);
    forget_pages();
    walk(place[0], &again);
    found = look(java_thread, &place[1]);
    if (found != WALK_DONE || memcmp(&place[0], &place[1], sizeof place[0])) return WALK_LATER;
    stack->after = clock_tsc();
    bool same = stack->count && stack->count == again.count && stack->whole == again.whole &&
                !memcmp(stack->frames, again.frames, (size_t)stack->count * sizeof *stack->frames);
    return same ? WALK_DONE : WALK_LATER;
}
