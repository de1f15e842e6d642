//! What a context remembers of the bits that came in one place of it: how many zeros and ones, and which was last.

/// The number of states.
pub(super) const STATES: usize = 247;

/// The most of one kind that are counted beside so many of the other.
const COUNT_MAX: [u8; 6] = [40, 25, 12, 7, 5, 5];

/// Zeros, ones, and the last bit where there were both.
#[derive(Clone, Copy)]
struct State {
    counts: [u8; 2],
    last: u8,
}

const fn smaller(counts: [u8; 2]) -> u8 {
    if counts[0] < counts[1] { counts[0] } else { counts[1] }
}

const fn larger(counts: [u8; 2]) -> u8 {
    if counts[0] < counts[1] { counts[1] } else { counts[0] }
}

const fn is_state(counts: [u8; 2]) -> bool {
    let smaller = smaller(counts) as usize;
    smaller < COUNT_MAX.len() && larger(counts) <= COUNT_MAX[smaller]
}

/// The states in the order of their sums, so that a higher number was seen more often.
const LIST: [State; STATES] = {
    let mut list = [State { counts: [0, 0], last: 0 }; STATES];
    let (mut len, mut sum) = (0, 0u8);
    while sum <= 40 {
        let mut zeros = 0;
        while zeros <= sum {
            let counts = [zeros, sum - zeros];
            let lasts = if smaller(counts) > 0 { 2 } else { 1 };
            let mut last = 0;
            while is_state(counts) && last < lasts {
                list[len] = State { counts, last };
                len += 1;
                last += 1;
            }
            zeros += 1;
        }
        sum += 1;
    }
    assert!(len == STATES);
    list
};

/// By state and bit.
pub(super) static NEXT: [[u8; 2]; 256] = {
    let mut next = [[0; 2]; 256];
    let mut state = 0;
    while state < STATES {
        next[state] = [after(LIST[state], 0), after(LIST[state], 1)];
        state += 1;
    }
    next
};

const fn after(state: State, bit: usize) -> u8 {
    let mut counts = state.counts;
    counts[bit] += 1;
    // What contradicts many of the other kind makes most of them forgotten.
    let other = counts[1 - bit];
    if other > 2 {
        counts[1 - bit] = other.ilog2() as u8 + 1;
    }
    if !is_state(counts) {
        counts[bit] -= 1;
    }
    let last = if smaller(counts) > 0 { bit as u8 } else { 0 };
    let mut number = 0;
    while LIST[number].counts[0] != counts[0]
        || LIST[number].counts[1] != counts[1]
        || LIST[number].last != last
    {
        number += 1;
    }
    number as u8
}

/// Returns the probability of a one in a state of which nothing was learned yet, of 2^22.
pub(super) const fn first_guess(state: usize) -> u32 {
    if state >= STATES {
        return 1 << 21;
    }
    let [zeros, ones] = LIST[state].counts;
    ((2 * ones as u32 + 1) << 21) / (zeros as u32 + ones as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_that_come_again_are_counted_and_others_make_them_forgotten() {
        let run = |bits: &[usize]| bits.iter().fold(0, |state, &bit| NEXT[state][bit].into());
        let counts = |bits: &[usize]| LIST[run(bits)].counts;
        assert_eq!(counts(&[]), [0, 0]);
        assert_eq!(counts(&[1, 1, 0]), [1, 2]);
        assert_eq!(counts(&[0; 100]), [40, 0]);
        assert_eq!(counts(&[&[0; 40][..], &[1]].concat()), [6, 1]);
        assert_eq!(counts(&[0, 1].repeat(100)), [2, 3]);
        assert_ne!(run(&[0, 1]), run(&[1, 0]), "the last one counts");
        let next = NEXT[..STATES].iter().flatten();
        assert!(next.into_iter().all(|&state| state > 0 && usize::from(state) < STATES));
        assert_eq!([first_guess(0), first_guess(1), first_guess(2)], [1 << 21, 3 << 20, 1 << 20]);
    }
}
