// SPDX-License-Identifier: Apache-2.0
import {z} from 'zod';

// What the clients make structured answers into.
export const Answer = z.object({
  name: z.enum(['Mira', 'Tom']),
  city: z.enum(['Oslo', 'Lisbon']),
  number: z.number().int().min(0).max(9),
});
